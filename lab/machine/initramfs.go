package machine

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cavaliergopher/cpio"
	"golang.org/x/sys/unix"
)

// guestKubeProxy is where a guest finds the kube-proxy of a version.
func guestKubeProxy(version string) string { return "/kplab/kube-proxy-" + version }

// initramfs is what a guest's root file system is made of. The root is the userland, so that modules and modprobe are where
// the kernel looks for them.
type initramfs struct {
	userland    string            // root folder of the userland; "" for none
	kernel      Kernel            // whose modules; none if its Modules is ""
	kubeProxies map[string]string // version -> path of the binary
	init        string            // path of the binary that is /init
	disk        bool              // the guest has one
}

// file writes the initramfs to an anonymous file in memory, which ends with its last descriptor: nothing is left on disk, however the
// process ends.
func (i initramfs) file() (_ *os.File, err error) {
	fd, err := unix.MemfdCreate("initramfs", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make the initramfs: %w", err)
	}
	f := os.NewFile(uintptr(fd), "initramfs")
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make the initramfs: %w", err), f.Close())
		}
	}()
	buffered := bufio.NewWriterSize(f, 1<<20)
	w := archive{cpio.NewWriter(buffered), map[string]bool{}}
	if i.userland != "" {
		if err := w.tree(i.userland); err != nil {
			return nil, err
		}
	}
	if i.kernel.Modules != "" {
		wanted := wantedModules()
		if i.disk {
			wanted = append(wanted, diskModules()...)
		}
		if err := w.modules(i.kernel, wanted); err != nil {
			return nil, err
		}
	}
	for _, v := range slices.Sorted(maps.Keys(i.kubeProxies)) {
		if err := w.file(i.kubeProxies[v], guestKubeProxy(v)[1:], 0o755); err != nil {
			return nil, fmt.Errorf("kube-proxy %s: %w", v, err)
		}
	}
	if err := w.file(i.init, "init", 0o755); err != nil {
		return nil, err
	}
	if err := w.cpio.Close(); err != nil {
		return nil, err
	}
	return f, buffered.Flush()
}

// archive adds files to a cpio archive. Owners are always root's and times none.
type archive struct {
	cpio *cpio.Writer
	dirs map[string]bool // made already
}

// mkdir makes a folder and those above it.
func (a archive) mkdir(name string) error {
	if name == "." || a.dirs[name] {
		return nil
	}
	if err := a.mkdir(path.Dir(name)); err != nil {
		return err
	}
	a.dirs[name] = true
	return a.cpio.WriteHeader(&cpio.Header{Name: name, Mode: cpio.TypeDir | 0o755, Links: 2})
}

func (a archive) file(from, name string, mode fs.FileMode) error {
	if err := a.mkdir(path.Dir(name)); err != nil {
		return err
	}
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	i, err := f.Stat()
	if err != nil {
		return err
	}
	if err := a.cpio.WriteHeader(&cpio.Header{Name: name, Mode: cpio.TypeReg | cpio.FileMode(mode.Perm()), Size: i.Size(), Links: 1}); err != nil {
		return err
	}
	_, err = io.Copy(a.cpio, f)
	return err
}

// tree adds all below root.
func (a archive) tree(root string) error {
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == root {
			return err
		}
		name, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		switch d.Type() {
		case fs.ModeDir:
			return a.mkdir(name)
		case fs.ModeSymlink:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			if err := a.cpio.WriteHeader(&cpio.Header{Name: name, Mode: cpio.TypeSymlink | 0o777, Size: int64(len(target)), Links: 1}); err != nil {
				return err
			}
			_, err = io.WriteString(a.cpio, target)
			return err
		case 0:
			i, err := d.Info()
			if err != nil {
				return err
			}
			return a.file(p, name, i.Mode())
		}
		return nil
	})
}

// modules adds wanted modules of a kernel and what modprobe needs to find them. /lib is a link to usr/lib in every userland.
func (a archive) modules(k Kernel, wanted []string) error {
	to := "usr/lib/modules/" + k.Release
	dep, err := os.ReadFile(filepath.Join(k.Modules, "modules.dep"))
	if err != nil {
		return fmt.Errorf("the modules of kernel %s (depmod makes modules.dep): %w", k.Name, err)
	}
	entries, err := os.ReadDir(k.Modules)
	if err != nil {
		return fmt.Errorf("the modules of kernel %s: %w", k.Name, err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "modules.") && e.Type().IsRegular() {
			if err := a.file(filepath.Join(k.Modules, e.Name()), path.Join(to, e.Name()), 0o644); err != nil {
				return err
			}
		}
	}
	for _, m := range closure(string(dep), wanted) {
		if err := a.file(filepath.Join(k.Modules, m), path.Join(to, m), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// ownBinary is the path of this binary if it can be a guest's /init, which has no libraries beside it.
func ownBinary() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this binary for the guest: %w", err)
	}
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("read %s: %w", exe, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "", fmt.Errorf("%s needs shared libraries and cannot be a VM's init: build it with CGO_ENABLED=0", exe)
		}
	}
	return "/proc/self/exe", nil
}
