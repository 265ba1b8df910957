package netns

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kplab/lab"
	"kplab/lab/thread"
	"kplab/lab/topology"
)

// host is a network namespace with a thread in it. It implements lab.Host.
type host struct {
	spec   topology.HostSpec
	thread *thread.Thread
	ns     int             // descriptor of the network namespace
	nl     *netlink.Handle // rtnetlink socket in it

	root     string // userland
	binaries map[string]string
	rootOnce sync.Once
	rootErr  error
}

func newHost(spec topology.HostSpec, root string, binaries map[string]string) (*host, error) {
	t, err := thread.New(unix.CLONE_NEWNET)
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", spec.Name, err)
	}
	h := &host{spec: spec, thread: t, ns: -1, root: root, binaries: binaries}
	err = t.Do(func() (err error) {
		if h.ns, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return fmt.Errorf("open network namespace: %w", err)
		}
		if h.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return fmt.Errorf("rtnetlink: %w", err)
		}
		lo, err := h.nl.LinkByName("lo")
		if err != nil {
			return err
		}
		return h.nl.LinkSetUp(lo)
	})
	if err != nil {
		h.close()
		return nil, fmt.Errorf("host %s: %w", spec.Name, err)
	}
	return h, nil
}

func (h *host) close() {
	if h.nl != nil {
		h.nl.Close()
	}
	if h.ns >= 0 {
		unix.Close(h.ns)
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

// inRoot runs fn on the host's thread after giving it the userland as root, once.
func (h *host) inRoot(fn func() error) error {
	return h.thread.Do(func() error {
		h.rootOnce.Do(func() { h.rootErr = enterRoot(h.root, h.binaries) })
		if h.rootErr != nil {
			return fmt.Errorf("host %s: %w", h.spec.Name, h.rootErr)
		}
		return fn()
	})
}

// Start starts a command in the host's namespaces and root. A command without a slash is looked up in the userland. It is
// killed when the lab dies.
func (h *host) Start(cmd *exec.Cmd) error {
	return h.inRoot(func() error {
		if !strings.Contains(cmd.Path, "/") {
			path, err := lookTool(cmd.Path)
			if err != nil {
				return fmt.Errorf("%w (userland %s)", err, h.root)
			}
			cmd.Path, cmd.Err = path, nil
		}
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &unix.SysProcAttr{}
		}
		cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
		return cmd.Start()
	})
}

func lookTool(name string) (string, error) {
	for _, dir := range toolPath {
		path := filepath.Join(dir, name)
		if st, err := os.Stat(path); err == nil && !st.IsDir() {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: not found in %s", name, strings.Join(toolPath, ":"))
}

// Command prepares a command for Start.
func (h *host) Command(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/", argv[1:]...)
	cmd.Path, cmd.Args, cmd.Err = argv[0], argv, nil
	cmd.Env = []string{"PATH=" + strings.Join(toolPath, ":"), "HOME=/tmp", "LANG=C"}
	return cmd
}

// Run implements lab.Host.
func (h *host) Run(ctx context.Context, argv ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := h.Command(ctx, argv...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := h.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	return stdout.String(), lab.ToolError(h.spec.Name, argv, err, stderr.String())
}

// WriteFile writes a file on the host's own /run; name is as the host sees it.
func (h *host) WriteFile(name string, data []byte) error {
	if !strings.HasPrefix(name, runDir+"/") {
		return fmt.Errorf("host %s: %s is outside %s", h.spec.Name, name, runDir)
	}
	return h.inRoot(func() error { return os.WriteFile(name, data, 0o644) })
}

// Dial connects from the host. address must be a literal: names would be looked up on another thread.
func (h *host) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	err = h.Do(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}
