package machine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Need is something that machines are made with and whether it is here.
type Need struct {
	Name   string // "namespaces", "apt-get", "dpkg-deb", "depmod", "keyring", "qemu", "kvm" or "disk"
	For    string // what it is for
	OK     bool
	Detail string // what was found
	// Remedy is the command that mends it, "" if there is none or nothing to mend.
	Remedy string
	// Optional says that kplab does without, only slower.
	Optional bool
}

// diskWanted is what a full cache takes, in bytes: two userlands and half a dozen kernels with what is fetched on the way.
const diskWanted = 1 << 30

// Check says what machines need and what of it is missing, in the order in which it should be mended.
func Check(c Cache) []Need {
	needs := []Need{checkNamespaces()}
	for _, t := range []struct{ tool, pkg, use string }{
		{"apt-get", "apt", "fetching kernels and userlands"},
		{"dpkg-deb", "dpkg", "unpacking kernels and userlands"},
		{"depmod", "kmod", "indexing the modules of a fetched kernel"},
	} {
		needs = append(needs, checkTool(t.tool, t.pkg, t.use))
	}
	needs = append(needs, checkKeyring(), checkQEMU(), checkKVM(), checkDisk(c.Root))
	return needs
}

// checkNamespaces makes the namespaces of a sandbox for a moment.
func checkNamespaces() Need {
	n := Need{Name: "namespaces", For: "cells on this kernel"}
	s := &Sandbox{}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{namespaceTrialArg}
	cmd.SysProcAttr = s.attributes()
	out, err := cmd.CombinedOutput()
	if err != nil {
		n.Detail = fmt.Sprintf("%v: %s", s.unavailable(err), strings.TrimSpace(string(out)))
		if s.userNamespace() {
			if _, command, ok := strings.Cut(userNamespaceRemedy(os.ReadFile), "set it with: "); ok {
				n.Remedy = command
			}
		}
		return n
	}
	n.OK = true
	n.Detail = "as root, without a user namespace"
	if s.userNamespace() {
		n.Detail = fmt.Sprintf("in a user namespace of uid %d", os.Geteuid())
	}
	return n
}

func checkTool(tool, pkg, use string) Need {
	n := Need{Name: tool, For: use}
	path, err := exec.LookPath(tool)
	if err != nil {
		n.Detail, n.Remedy = err.Error(), "apt-get install "+pkg
		return n
	}
	n.OK, n.Detail = true, path
	return n
}

func checkKeyring() Need {
	n := Need{Name: "keyring", For: "checking the signatures of what is fetched", Detail: keyring}
	if _, err := os.Stat(keyring); err != nil {
		n.Detail, n.Remedy = err.Error(), "apt-get install debian-archive-keyring"
		return n
	}
	n.OK = true
	return n
}

func checkQEMU() Need {
	p, err := platformOf(runtime.GOARCH)
	if err != nil {
		return Need{Name: "qemu", For: "cells on other kernels", Detail: err.Error()}
	}
	n := checkTool(p.qemu, p.pkg, "cells on other kernels")
	n.Name = "qemu"
	return n
}

func checkKVM() Need {
	n := Need{Name: "kvm", For: "fast VMs", Optional: true, Detail: "/dev/kvm opens; whether guests run is tried at the first VM"}
	if _, err := acceleratorKey(); err != nil {
		n.Detail = fmt.Sprintf("%v: VMs run under TCG, many times slower", err)
		return n
	}
	n.OK = true
	return n
}

func checkDisk(root string) Need {
	n := Need{Name: "disk", For: "the cache"}
	var fs unix.Statfs_t
	for dir := root; ; dir = filepath.Dir(dir) { // it need not exist yet
		err := unix.Statfs(dir, &fs)
		if err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			n.Detail = fmt.Sprintf("%s: %v", root, err)
			return n
		}
	}
	free := int64(fs.Bavail) * fs.Bsize
	n.OK = free >= diskWanted
	n.Detail = fmt.Sprintf("%s free for %s, at most %s wanted", megabytes(free), root, megabytes(diskWanted))
	return n
}
