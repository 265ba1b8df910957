package netns

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// runDir is where a host finds kube-proxy and its files, on a tmpfs of its own.
const runDir = "/run/kplab"

// toolPath is where a host's tools are looked up, in this order.
var toolPath = []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// enterRoot gives the calling thread a mount namespace whose root is the userland: read as it is, with a /run and /tmp of
// its own (iptables' lock lives in /run), a /proc of the pid namespace, a /sys of the network namespace and the harmless
// devices. binaries (version -> path) appear as runDir/kube-proxy-VERSION. Nothing is written to the userland.
func enterRoot(root string, binaries map[string]string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// Opened first: the tmpfs below may cover the folder that they are in.
	sources := map[string]int{}
	for version, path := range binaries {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("kube-proxy %s: open %s: %w", version, path, err)
		}
		defer unix.Close(fd)
		sources[runDir+"/kube-proxy-"+version] = fd
	}
	devices := map[string]int{}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		if fd, err := unix.Open("/dev/"+name, unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
			defer unix.Close(fd)
			devices["/dev/"+name] = fd
		}
	}
	modules, err := unix.Open("/lib/modules", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(modules)
	}

	if root != "/" {
		if err := unix.Mount(root, root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind userland %s: %w", root, err)
		}
		if err := unix.Chroot(root); err != nil {
			return fmt.Errorf("chroot %s: %w", root, err)
		}
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc in %s: %w", root, err)
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_RDONLY, ""); err != nil && root != "/" {
		// A sysfs of our own is refused where the outer one is partly covered (containers); kube-proxy can do without.
		if err := unix.Mount("tmpfs", "/sys", "tmpfs", 0, ""); err != nil {
			return fmt.Errorf("mount /sys in %s: %w", root, err)
		}
	}
	for _, dir := range []string{"/run", "/tmp"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount tmpfs on %s: %w", filepath.Join(root, dir), err)
		}
	}
	if root != "/" {
		if err := unix.Mount("tmpfs", "/dev", "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount tmpfs on %s/dev: %w", root, err)
		}
		if err := bindFiles(devices); err != nil {
			return err
		}
		if _, err := os.Stat("/lib/modules"); err == nil && modules >= 0 {
			// Best effort: what modprobe finds only matters on hosts whose kernel has modules.
			_ = unix.Mount(fdPath(modules), "/lib/modules", "", unix.MS_BIND, "")
		}
	}
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return err
	}
	return bindFiles(sources)
}

// bindFiles mounts the file behind each descriptor on the path it is listed under.
func bindFiles(fds map[string]int) error {
	for path, fd := range fds {
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		f.Close()
		if err := unix.Mount(fdPath(fd), path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", path, err)
		}
	}
	return nil
}

func fdPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }
