package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
)

// Execute runs a tool and returns its standard output and error together.
type Execute func(ctx context.Context, argv ...string) (output string, err error)

// toolPath is where a userland's tools are looked for.
const toolPath = "/usr/sbin:/usr/bin:/sbin:/bin"

// Chroot returns an [Execute] for tools of the userland at root; "" and "/" are this machine's own. A caller who is not root
// gets a user and a network namespace for it.
func Chroot(root string) Execute { return chroot(root, 0) }

// chroot is [Chroot] with more namespaces (CLONE_NEW...) for each tool.
func chroot(root string, namespaces uintptr) Execute {
	return func(ctx context.Context, argv ...string) (string, error) {
		tool, err := findTool(root, argv[0])
		if err != nil {
			return "", err
		}
		cmd := exec.CommandContext(ctx, tool, argv[1:]...)
		cmd.Dir = "/"
		cmd.Env = []string{"PATH=" + toolPath, "LC_ALL=C"}
		if root != "" && root != "/" {
			cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Cloneflags: namespaces}
			if os.Geteuid() != 0 {
				cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET
				cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
				cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
			}
		}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			return "", fmt.Errorf("%q in %s: %w: %s", argv, root, err, strings.TrimSpace(out.String()))
		}
		return out.String(), nil
	}
}

// findTool returns the path, inside root, of a tool.
func findTool(root, tool string) (string, error) {
	for dir := range strings.SplitSeq(toolPath, ":") {
		path := filepath.Join(dir, tool)
		if _, err := os.Lstat(filepath.Join(root, path)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not in %s: %w", tool, filepath.Join("/", root), exec.ErrNotFound)
}

// toolProbes says how each tool is asked for its version.
func toolProbes() map[string][]string {
	return map[string][]string{
		"nft":       {"nft", "--version"},
		"iptables":  {"iptables", "--version"},
		"ipset":     {"ipset", "--version"},
		"ipvsadm":   {"ipvsadm", "--version"},
		"conntrack": {"conntrack", "--version"},
		"kmod":      {"kmod", "--version"},
		"iproute2":  {"ip", "-V"},
	}
}

var versionPattern = regexp.MustCompile(`(?:\bv|version |iproute2-)(\d[\w.]*(?: \((?:nf_tables|legacy)\))?)`)

// toolsFile is where a fetched userland records its tools' versions, relative to its root.
const toolsFile = "kplab/tools.json"

// Tools returns the versions of the tools of the userland at root: as recorded when it was fetched, else as [Versions] finds them.
func Tools(ctx context.Context, root string) map[string]string {
	var tools map[string]string
	b, err := os.ReadFile(filepath.Join("/", root, toolsFile))
	if err == nil && json.Unmarshal(b, &tools) == nil {
		return tools
	}
	return Versions(ctx, Chroot(root))
}

// Versions asks a userland's tools ("nft", "iptables", "ipset", "ipvsadm", "conntrack", "kmod", "iproute2") for their versions.
// Tools that are missing or fail are left out; ipvsadm fails on a kernel without IPVS, whatever it is asked. iptables' version says which variant it is: "1.8.9 (nf_tables)".
func Versions(ctx context.Context, execute Execute) map[string]string {
	tools, _ := versions(ctx, execute, toolProbes())
	return tools
}

func versions(ctx context.Context, execute Execute, probes map[string][]string) (map[string]string, error) {
	var (
		mu    sync.Mutex
		group sync.WaitGroup
		errs  []error
	)
	tools := map[string]string{}
	for tool, argv := range probes {
		group.Go(func() {
			out, err := execute(ctx, argv...)
			mu.Lock()
			defer mu.Unlock()
			m := versionPattern.FindStringSubmatch(out)
			switch {
			case err != nil:
				errs = append(errs, err)
			case m == nil:
				errs = append(errs, fmt.Errorf("%q printed no version: %s", argv, strings.TrimSpace(out)))
			default:
				tools[tool] = m[1]
			}
		})
	}
	group.Wait()
	return tools, errors.Join(errs...)
}
