package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kplab/lab"
)

// KernelHost names the running kernel, for which there is no [Kernel] and no VM: its runner is [Sandbox].
const KernelHost = "host"

// Kernel is a kernel that a [VM] can boot.
type Kernel struct {
	Name    string `json:"name"`              // "debian-12", "trixie-backports:6.18" or the path it was given as
	Release string `json:"release"`           // uname -r: "6.1.0-57-cloud-amd64"
	Package string `json:"package,omitempty"` // Debian package and version it came in
	Kept    string `json:"kept,omitempty"`    // [keptModules] of the kplab that fetched it
	Image   string `json:"-"`                 // path of its vmlinuz
	Modules string `json:"-"`                 // path of its lib/modules/RELEASE
}

// KernelStatus says of a kernel name whether it is in the cache and what it was found to be.
type KernelStatus struct {
	Name    string // as [Cache.Kernel] takes it
	Cached  bool
	Release string // uname -r; "" unless cached, or the host's
	Package string // Debian package and version; "" unless cached
	Size    int64  // bytes in the cache
}

// Kernels lists the names that every cache knows and all other kernels that this one holds. Beside them, "SUITE:VERSION" names a
// series or version of a Debian suite, and a path a kernel of one's own.
func Kernels(c Cache) ([]KernelStatus, error) {
	list := []KernelStatus{{Name: KernelHost, Cached: true, Release: release()}}
	names := kernelNames()
	found, err := filepath.Glob(filepath.Join(c.Root, "kernels", "*", "kernel.json"))
	if err != nil {
		return nil, fmt.Errorf("list the cached kernels: %w", err)
	}
	cached := map[string]KernelStatus{}
	for _, f := range found {
		k, err := loadKernel(filepath.Dir(f))
		if err != nil {
			return nil, err
		}
		if k.Kept != keptModules() {
			continue
		}
		cached[k.Name] = KernelStatus{Name: k.Name, Cached: true, Release: k.Release, Package: k.Package, Size: treeSize(filepath.Dir(f))}
		if !slices.Contains(names, k.Name) {
			names = append(names, k.Name)
		}
	}
	for _, n := range names {
		if s, ok := cached[n]; ok {
			list = append(list, s)
		} else {
			list = append(list, KernelStatus{Name: n})
		}
	}
	return list, nil
}

// kernelNames are the names worth suggesting, without the host's.
func kernelNames() []string {
	var names []string
	for _, r := range releases() {
		names = append(names, r.name)
	}
	return append(names, "trixie-backports", "sid")
}

// KernelSource is what a kernel's name means.
type KernelSource struct {
	Name   string // the canonical name: "bookworm" is "debian-12"
	Suite  string // of Debian; "" for a path and for the host
	Series string // what the version starts with; "" = the newest
	Path   string // a vmlinuz of one's own
}

// ParseKernel reads a kernel's name: host; debian-11, debian-12, debian-13; SUITE or SUITE:VERSION, the newest kernel of a Debian suite or of
// a series in it (trixie-backports:6.18); or the path of a vmlinuz (with a slash in it). The error names the nearest and lists all.
func ParseKernel(name string) (KernelSource, error) {
	if name == KernelHost {
		return KernelSource{Name: name}, nil
	}
	if strings.Contains(name, "/") {
		path, err := filepath.Abs(name)
		if err != nil {
			return KernelSource{}, fmt.Errorf("kernel %s: %w", name, err)
		}
		return KernelSource{Name: path, Path: path}, nil
	}
	suite, series, versioned := strings.Cut(name, ":")
	for _, r := range releases() {
		switch {
		case suite == r.name && !versioned, suite == r.suite && (!versioned || series == r.series):
			return KernelSource{Name: r.name, Suite: r.suite, Series: r.series}, nil
		case suite == r.name:
			return KernelSource{Name: r.suite + ":" + series, Suite: r.suite, Series: series}, nil
		}
	}
	known := append(append([]string{KernelHost}, kernelNames()...), suites()...)
	if !slices.Contains(suites(), suite) {
		return KernelSource{}, fmt.Errorf("unknown kernel %q%s (also SUITE:VERSION as in trixie-backports:6.18, suites being %s; or the path of a vmlinuz)",
			name, lab.Suggest(suite, known), strings.Join(suites(), ", "))
	}
	if versioned && series == "" {
		return KernelSource{}, fmt.Errorf("kernel %q names no version after the colon", name)
	}
	return KernelSource{Name: name, Suite: suite, Series: series}, nil
}

// Kernel returns a kernel by name (see [ParseKernel]), fetching it if it is not in the cache yet. A name that stands for the newest of
// something keeps meaning what was newest when it was fetched; remove its folder to fetch again. It needs no root. The host's kernel
// is no kernel to boot and is an error here.
func (c Cache) Kernel(ctx context.Context, name string) (Kernel, error) {
	source, err := ParseKernel(name)
	if err != nil {
		return Kernel{}, err
	}
	switch {
	case source.Path != "":
		return localKernel(source.Path)
	case source.Suite == "":
		return Kernel{}, fmt.Errorf("kernel %s is the one that runs already: it takes a sandbox, not a VM", name)
	}
	// A kplab that takes other modules along keeps its own: neither waits for, nor removes, what the other has.
	dir := c.entry("kernels", source.Name+"-"+keptModules())
	if err := c.ensure(dir, func(part, scratch string) error { return c.fetchKernel(ctx, source, part, scratch) }); err != nil {
		return Kernel{}, fmt.Errorf("kernel %s: %w", source.Name, err)
	}
	return loadKernel(dir)
}

func loadKernel(dir string) (Kernel, error) {
	var k Kernel
	b, err := os.ReadFile(filepath.Join(dir, "kernel.json"))
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err != nil {
		return Kernel{}, fmt.Errorf("read a cached kernel (remove %s to fetch it again): %w", dir, err)
	}
	k.Image = filepath.Join(dir, "vmlinuz")
	k.Modules = filepath.Join(dir, "lib/modules", k.Release)
	return k, nil
}

// localKernel finds the modules that belong to a vmlinuz: lib/modules/RELEASE beside it or one folder up, as in / with /boot/vmlinuz-RELEASE.
func localKernel(image string) (Kernel, error) {
	const expected = "expected is a vmlinuz with lib/modules/RELEASE (the only one there, or the one that the file's name ends in) in the same folder or the one above, as make modules_install INSTALL_MOD_PATH=FOLDER and make install INSTALL_PATH=FOLDER/boot leave it"
	i, err := os.Stat(image)
	if err != nil {
		return Kernel{}, fmt.Errorf("kernel %s: %w; %s", image, err, expected)
	}
	if !i.Mode().IsRegular() {
		return Kernel{}, fmt.Errorf("kernel %s: not a file; %s", image, expected)
	}
	parent := filepath.Dir(image)
	for _, base := range []string{parent, filepath.Dir(parent)} {
		modules := filepath.Join(base, "lib/modules")
		dirs, err := os.ReadDir(modules)
		if err != nil {
			continue
		}
		for _, d := range dirs {
			if len(dirs) == 1 || filepath.Base(image) == "vmlinuz-"+d.Name() {
				return Kernel{Name: image, Release: d.Name(), Image: image, Modules: filepath.Join(modules, d.Name())}, nil
			}
		}
	}
	return Kernel{}, fmt.Errorf("kernel %s: no modules found; %s", image, expected)
}
