package machine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// diskArg is among the Args of the /init of a guest that has a disk, before [guestArg].
const diskArg = "kplab-disk"

// DiskUserland is where a guest whose root is a disk finds the userland that it was booted from.
const DiskUserland = "/userland"

// diskDevice is the disk of [VM.Disk] in its guest.
const diskDevice = "/dev/vda"

// diskModules are the modules that a guest with a disk takes along besides: to reach it, and for a container engine to work on it.
func diskModules() []string {
	return []string{"drivers/block/virtio_blk", "fs/ext4/*", "fs/overlayfs/*"}
}

// diskArguments are QEMU's for a disk. What the guest writes goes to a file that QEMU has unlinked.
func diskArguments(path string) []string {
	return []string{
		"-drive", "if=none,id=disk,format=raw,snapshot=on,cache=unsafe,file=" + strings.ReplaceAll(path, ",", ",,"),
		"-device", "virtio-blk-pci,drive=disk",
	}
}

// switchRoot makes the disk the root. What the guest was booted from stays within reach: the modules, the kube-proxies, the userland.
func switchRoot() error {
	for _, m := range [][2]string{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}} {
		if err := mount(m[0], m[1], m[0], 0, ""); err != nil {
			return err
		}
	}
	if out, err := exec.Command("/sbin/modprobe", "-a", "virtio_pci", "virtio_blk", "ext4").CombinedOutput(); err != nil {
		return fmt.Errorf("load the disk's modules: %w: %s", err, strings.TrimSpace(string(out)))
	}
	deadline := time.Now().Add(time.Minute)
	for {
		_, err := os.Stat(diskDevice)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the guest's disk has not come: %w", err)
		}
		pause(10 * time.Millisecond)
	}
	const root = "/disk"
	if err := mount(diskDevice, root, "ext4", unix.MS_NOATIME, ""); err != nil {
		return err
	}
	for from, to := range map[string]string{"/lib/modules": "/lib/modules", "/kplab": "/kplab", "/": DiskUserland} {
		if err := mount(from, filepath.Join(root, to), "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	for _, m := range []string{"/proc", "/sys", "/dev"} {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", m, err)
		}
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("make the disk the root: %w", err)
	}
	// The kernel's own helpers, modprobe above all, have their root with pid 1.
	return errors.Join(unix.Chroot("."), os.Chdir("/"))
}

// mount mounts, and makes the place.
func mount(source, target, fstype string, flags uintptr, data string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return fmt.Errorf("mount %s: %w", target, err)
	}
	if err := unix.Mount(source, target, fstype, flags, data); err != nil {
		return fmt.Errorf("mount %s at %s: %w", source, target, err)
	}
	return nil
}
