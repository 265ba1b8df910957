package kindenv

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kplab/lab"
	"kplab/lab/thread"
	"kplab/lab/topology"
)

// host is a network namespace of the cluster: a node's, a pod's or an outside container's. It implements lab.Host.
type host struct {
	spec   topology.HostSpec
	thread *thread.Thread
	tools  *thread.Thread // with the files of root; starts programs
	nl     *netlink.Handle
	netns  string    // path that stands for the network namespace
	root   int       // pid of the container whose files its tools come from
	begin  *snapshot // what every cell begins with; nil until the first reset
}

// join enters the network namespace at a path. Tools come from the container of that pid.
func join(spec topology.HostSpec, path string, root int) (*host, error) {
	t, err := thread.Join(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", spec.Name, err)
	}
	h := &host{spec: spec, thread: t, netns: path, root: root}
	h.tools, err = thread.JoinWithMounts(path, procPath(root, "ns/mnt"))
	if err == nil {
		err = h.openNetlink()
	}
	if err != nil {
		h.close()
		return nil, fmt.Errorf("%s: %w", spec.Name, err)
	}
	return h, nil
}

func (h *host) openNetlink() error {
	return h.Do(func() (err error) {
		if h.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			err = fmt.Errorf("rtnetlink: %w", err)
		}
		return err
	})
}

func (h *host) close() {
	if h.nl != nil {
		h.nl.Close()
	}
	if h.tools != nil {
		h.tools.Close()
	}
	h.thread.Close()
}

// Name implements lab.Host.
func (h *host) Name() string { return h.spec.Name }

// Address implements lab.Host.
func (h *host) Address(name string, family lab.Family) (netip.Addr, bool) {
	p, ok := h.spec.Address(name, family == lab.IPv6)
	return p.Addr(), ok
}

// Do implements lab.Host.
func (h *host) Do(fn func() error) error { return h.thread.Do(fn) }

// toolPath is where a host's tools are.
var toolPath = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// Run implements lab.Host. The tools are those of the node image.
func (h *host) Run(ctx context.Context, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=" + strings.Join(toolPath, ":"), "HOME=/root", "LANG=C"}
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := h.tools.Do(func() error {
		cmd.Path, cmd.Err = find(argv[0])
		return cmd.Start()
	})
	if err == nil {
		err = cmd.Wait()
	}
	return stdout.String(), lab.ToolError(h.spec.Name, argv, err, stderr.String())
}

// find looks a tool up where the calling thread's files are: what exec.Command has found is this machine's.
func find(tool string) (string, error) {
	if strings.Contains(tool, "/") {
		return tool, nil
	}
	for _, dir := range toolPath {
		path := filepath.Join(dir, tool)
		if unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	return "", &exec.Error{Name: tool, Err: exec.ErrNotFound}
}

// setSysctl writes a sysctl of the host's network namespace; key is dotted.
func (h *host) setSysctl(key, value string) error {
	return h.Do(func() error {
		if err := os.WriteFile(sysctlPath(key), []byte(value), 0); err != nil {
			return fmt.Errorf("%s: sysctl %s=%s: %w", h.spec.Name, key, value, err)
		}
		return nil
	})
}

// sysctl reads one; ok is false where the kernel lacks it.
func (h *host) sysctl(key string) (value string, ok bool) {
	err := h.Do(func() error {
		data, err := os.ReadFile(sysctlPath(key))
		value = strings.TrimSpace(string(data))
		return err
	})
	return value, err == nil
}

func sysctlPath(key string) string { return "/proc/sys/" + strings.ReplaceAll(key, ".", "/") }

func procPath(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// podNamespaces are the network namespaces of a node's pods, by each address that is in them. containerd has the CNI
// plugins' namespaces mounted below /run/netns of the node.
func podNamespaces(node *host) (map[netip.Addr]string, error) {
	dir := procPath(node.root, "root/run/netns")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("network namespaces of %s's pods: %w", node.Name(), err)
	}
	found := map[netip.Addr]string{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		pod, err := join(topology.HostSpec{Name: e.Name()}, path, node.root)
		if err != nil {
			continue // of a pod that is going
		}
		addresses, err := pod.nl.AddrList(nil, netlink.FAMILY_ALL)
		pod.close()
		if err != nil {
			continue
		}
		for _, a := range addresses {
			if ip, ok := netip.AddrFromSlice(a.IP); ok && !ip.Unmap().IsLoopback() {
				found[ip.Unmap()] = path
			}
		}
	}
	return found, nil
}
