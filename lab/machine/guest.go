package machine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// portName is the virtio-serial port that the job comes in by and events leave by.
const portName = "kplab"

// trialArg is the last of the Args of a trial guest's /init, which says trialWords on its console and powers off.
const (
	trialArg   = "kplab-trial"
	trialWords = "kplab: this accelerator works"
)

// guestInit is pid 1 of a guest. It never returns.
func guestInit() {
	if err := runGuest(); err != nil {
		fmt.Fprintln(os.Stderr, "kplab:", err)
	}
	powerOff()
}

func runGuest() error {
	if slices.Contains(os.Args, diskArg) {
		if err := switchRoot(); err != nil {
			return err
		}
	}
	if err := setUpGuest(); err != nil {
		return err
	}
	port, err := openPort()
	if err != nil {
		return err
	}
	events, err := duplicate(port)
	if err != nil {
		return err
	}
	if err := preload(); err != nil {
		return err
	}
	agent, err := startAgent(port, events)
	if err != nil {
		return err
	}
	if status := reap(agent); status != 0 {
		return fmt.Errorf("the agent ended with status %d", status)
	}
	return nil
}

// preload starts loading what every kube-proxy mode needs: one modprobe where the kernel would start dozens, each of which takes a
// tenth of a second under TCG. What it does not name is loaded when it is asked for, as on any node. [reap] waits for it.
func preload() error {
	cmd := exec.Command("/sbin/modprobe", append([]string{"-a", "-q"}, preloaded()...)...)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("load modules: %w", err)
	}
	return cmd.Process.Release()
}

func preloaded() []string {
	return []string{
		"veth", "dummy", "bridge", "nf_tables", "nft_compat", "nft_chain_nat", "nft_ct", "nft_fib_ipv4", "nft_fib_ipv6", "nft_fib_inet", "nft_numgen", "nft_masq",
		"nft_reject_inet", "nft_limit", "nft_log", "nf_conntrack_netlink", "nfnetlink_acct", "xt_comment", "xt_conntrack", "xt_mark", "xt_MASQUERADE", "xt_nat",
		"xt_statistic", "xt_addrtype", "xt_recent", "xt_nfacct", "xt_set", "ipt_REJECT", "ip6t_REJECT", "ip_vs", "ip_vs_rr", "ip_set", "ip_set_bitmap_port",
		"ip_set_hash_ip", "ip_set_hash_ipport", "ip_set_hash_ipportip", "ip_set_hash_ipportnet", "ip_set_hash_net", "sch_netem",
	}
}

// trialInit is all that a trial guest does.
func trialInit() {
	fmt.Println(trialWords)
	powerOff()
}

func powerOff() {
	unix.Sync()
	err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	fmt.Fprintln(os.Stderr, "kplab: power off:", err)
	os.Exit(1) // the kernel panics, which ends the VM
}

// setUpGuest makes of an initramfs what a process expects of a machine.
func setUpGuest() error {
	for _, m := range []struct {
		target, fstype string
		flags          uintptr
		data           string
	}{
		{"/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"/sys", "sysfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"/sys/fs/cgroup", "cgroup2", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"/dev", "devtmpfs", unix.MS_NOSUID, "mode=0755"},
		{"/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=0620,ptmxmode=0666"},
		{"/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"},
		{"/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	} {
		if err := mount(m.fstype, m.target, m.fstype, m.flags, m.data); err != nil {
			return err
		}
	}
	if err := unix.Sethostname([]byte("kplab")); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	os.Setenv("PATH", toolPath)
	os.Setenv("HOME", "/root")
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return nil
}

// openPort finds the virtio-serial port by its name and opens it once the runner's side is connected; before that, reading it says
// that the stream has ended.
func openPort() (*os.File, error) {
	if _, err := findPort(); err != nil { // the drivers are not built in
		if out, err := exec.Command("/sbin/modprobe", "-a", "virtio_pci", "virtio_console").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("load the virtio modules: %w: %s", err, strings.TrimSpace(string(out)))
		}
	}
	const patience = time.Minute
	deadline := time.Now().Add(patience)
	var f *os.File
	for f == nil {
		path, err := findPort()
		if err == nil {
			if f, err = os.OpenFile(path, os.O_RDWR, 0); err == nil {
				break
			}
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("no virtio-serial port after %v: %w", patience, err)
		}
		// sysfs and devtmpfs tell nobody of new entries.
		pause(10 * time.Millisecond)
	}
	for {
		fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLOUT}}
		_, err := unix.Poll(fds, 10)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, fmt.Errorf("wait for the runner on the port: %w", err)
		case fds[0].Revents&unix.POLLHUP == 0 && fds[0].Revents&unix.POLLOUT != 0:
			return f, nil
		case time.Now().After(deadline):
			return nil, fmt.Errorf("nobody connected to the virtio-serial port within %v", patience)
		case fds[0].Revents&unix.POLLHUP != 0:
			pause(10 * time.Millisecond)
		}
	}
}

// pause lets a poll loop rest.
func pause(d time.Duration) {
	t := time.NewTimer(d)
	<-t.C
}

func findPort() (path string, err error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return "", err
	}
	for _, n := range names {
		if b, err := os.ReadFile(n); err == nil && strings.TrimSpace(string(b)) == portName {
			return filepath.Join("/dev", filepath.Base(filepath.Dir(n))), nil
		}
	}
	return "", fmt.Errorf("no port named %s in /sys/class/virtio-ports", portName)
}

func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate the port: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
