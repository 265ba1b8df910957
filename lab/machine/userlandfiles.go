package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
)

// foundation makes what packages expect to be there before them: a merged /usr and the places to mount on.
func foundation(root *os.Root) error {
	for _, d := range []string{
		"usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "etc/alternatives", "proc", "sys", "dev", "run", "tmp", "root", "home", "mnt",
		"var/lib", "var/log", "var/tmp", "kplab",
	} {
		if err := root.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := root.Symlink("usr/"+d, d); err != nil {
			return err
		}
	}
	return root.Symlink("/run", "var/run")
}

// finish makes what the packages' scripts would make if they were run: links of alternatives, accounts, the shell.
func finish(root *os.Root) error {
	for name, content := range map[string]string{
		"etc/passwd":        "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"etc/group":         "root:x:0:\nnogroup:x:65534:\n",
		"etc/hosts":         "127.0.0.1 localhost\n::1 localhost ip6-localhost\n",
		"etc/host.conf":     "multi on\n",
		"etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nprotocols: files\nservices: files\n",
		"etc/resolv.conf":   "",
		"etc/ld.so.conf":    "include /etc/ld.so.conf.d/*.conf\n",
		"root/.bashrc":      "PS1='\\h:\\w\\$ '\n",
	} {
		if err := replaceFile(root, name, content); err != nil {
			return err
		}
	}
	// As update-alternatives would choose: the nft variant has the higher priority.
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-save", "-restore"} {
			if err := alternative(root, "usr/sbin/"+family+suffix, "/usr/sbin/"+family+"-nft"+suffix); err != nil {
				return err
			}
		}
	}
	if err := linkIfMissing(root, "bash", "usr/bin/sh"); err != nil {
		return err
	}
	for _, tool := range []string{
		"awk", "cat", "chmod", "clear", "cp", "cut", "date", "dd", "df", "dmesg", "env", "expr", "false", "find", "free", "grep", "head", "hexdump",
		"hostname", "id", "kill", "less", "ln", "ls", "mkdir", "more", "mount", "mv", "nc", "ping", "ping6", "ps", "pwd", "readlink", "reset", "rm", "rmdir",
		"sed", "seq", "sleep", "sort", "stat", "stty", "sysctl", "tail", "tee", "test", "time", "timeout", "top", "touch", "tr", "traceroute", "true", "tty",
		"umount", "uname", "uniq", "uptime", "vi", "watch", "wc", "wget", "which", "xargs",
	} {
		if err := linkIfMissing(root, "busybox", "usr/bin/"+tool); err != nil {
			return err
		}
	}
	return nil
}

func replaceFile(root *os.Root, name, content string) error {
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return root.WriteFile(name, []byte(content), 0o644)
}

// alternative links name by way of /etc/alternatives to target.
func alternative(root *os.Root, name, target string) error {
	if _, err := root.Lstat(target[1:]); err != nil {
		return fmt.Errorf("the alternative of %s: %w", name, err)
	}
	via := "etc/alternatives/" + path.Base(name)
	for _, l := range []struct{ target, name string }{{target, via}, {"/" + via, name}} {
		if err := root.Remove(l.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := root.Symlink(l.target, l.name); err != nil {
			return err
		}
	}
	return nil
}

func linkIfMissing(root *os.Root, target, name string) error {
	if _, err := root.Lstat(name); err == nil {
		return nil
	}
	return root.Symlink(target, name)
}
