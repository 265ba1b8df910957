package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	debversion "github.com/knqyf263/go-deb-version"
)

// kernelPackage is one version of a kernel in Debian's index.
type kernelPackage struct {
	name    string // "linux-image-6.1.0-57-cloud-amd64"
	version string
	depends []string // "name=version" of the packages of the same build that hold its parts
}

func (p kernelPackage) release() string { return strings.TrimPrefix(p.name, "linux-image-") }

// series is the first two numbers of the release: "6.1".
func (p kernelPackage) series() string {
	return regexp.MustCompile(`^\d+\.\d+`).FindString(p.release())
}

// flavour is the kernel flavour for VMs: a third of the modules, all of netfilter and IPVS among them, no firmware.
func flavour() string { return "cloud-" + debianArch() }

// fetchKernel fetches the newest kernel of a source that the mirror really has, and keeps of it what a VM needs.
func (c Cache) fetchKernel(ctx context.Context, source KernelSource, dir, scratch string) error {
	started := time.Now()
	c.progress("kernel %s: fetching Debian's index of %s", source.Name, source.Suite)
	a, err := newApt(ctx, scratch, source.Suite)
	if err != nil {
		return err
	}
	candidates, err := a.kernels(ctx, source)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range candidates {
		c.progress("kernel %s: fetching %s %s (%s so far)", source.Name, p.name, p.version, seconds(started))
		debs, err := a.download(ctx, append([]string{p.name + "=" + p.version}, p.depends...)...)
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			// A mirror's index may name files that it does not have.
			c.progress("kernel %s: the mirror does not have %s %s, trying the next older: %v", source.Name, p.name, p.version, err)
			errs = append(errs, err)
			continue
		}
		full := filepath.Join(scratch, "full")
		fetched, err := a.unpackKernel(ctx, debs, full)
		if err != nil {
			return err
		}
		k := Kernel{Name: source.Name, Release: p.release(), Package: p.name + " " + p.version}
		kept, err := keepKernel(ctx, full, k, dir)
		if err != nil {
			return err
		}
		c.progress("kernel %s: fetched %s, keeping %s (%d modules), in %s", source.Name, megabytes(fetched), megabytes(treeSize(dir)), kept, seconds(started))
		return nil
	}
	return errors.Join(errs...)
}

// kernels lists the kernels of a source's series, newest first.
func (a *apt) kernels(ctx context.Context, source KernelSource) ([]kernelPackage, error) {
	out, err := a.run(ctx, "apt-cache", "pkgnames", "linux-image-")
	if err != nil {
		return nil, err
	}
	image := regexp.MustCompile(`^linux-image-\d.*-` + flavour() + `$`)
	var names []string
	for _, n := range strings.Fields(out) {
		if image.MatchString(n) {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("suite %s of Debian has no kernel of flavour %s", source.Suite, flavour())
	}
	if out, err = a.run(ctx, append([]string{"apt-cache", "show"}, names...)...); err != nil {
		return nil, err
	}
	all := parseKernelPackages(out)
	series := slices.DeleteFunc(slices.Clone(all), func(p kernelPackage) bool { return !inSeries(p.release(), source.Series) })
	if len(series) == 0 {
		var has []string
		for _, p := range all {
			has = append(has, p.series())
		}
		return nil, fmt.Errorf("suite %s of Debian has no kernel %s; it has %s", source.Suite, source.Series, strings.Join(slices.Compact(has), ", "))
	}
	return series, nil
}

// inSeries reports whether a release is of a series: 6.1.0-57 is of 6.1 and of 6.1.0-57, not of 6.
func inSeries(release, series string) bool {
	rest, ok := strings.CutPrefix(release, series)
	return ok && (series == "" || rest == "" || rest[0] < '0' || rest[0] > '9')
}

// parseKernelPackages reads apt-cache show's paragraphs and returns the kernels among them, newest first, without metapackages.
func parseKernelPackages(paragraphs string) []kernelPackage {
	part := regexp.MustCompile(`(linux-(?:base|binary|modules|image)-\S+) \(= (\S+)\)`)
	var list []kernelPackage
	for paragraph := range strings.SplitSeq(paragraphs, "\n\n") {
		var p kernelPackage
		for line := range strings.Lines(paragraph) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			switch key {
			case "Package":
				p.name = value
			case "Version":
				p.version = value
			case "Depends":
				for _, m := range part.FindAllStringSubmatch(value, -1) {
					p.depends = append(p.depends, m[1]+"="+m[2])
				}
			}
		}
		meta := slices.ContainsFunc(p.depends, func(d string) bool { return strings.HasPrefix(d, "linux-image-") })
		same := slices.ContainsFunc(list, func(q kernelPackage) bool { return q.name == p.name && q.version == p.version })
		if p.name != "" && !meta && !same {
			list = append(list, p)
		}
	}
	slices.SortStableFunc(list, func(a, b kernelPackage) int {
		va, errA := debversion.NewVersion(a.version)
		vb, errB := debversion.NewVersion(b.version)
		if errA != nil || errB != nil {
			return strings.Compare(b.version, a.version)
		}
		return vb.Compare(va)
	})
	return list
}

// unpackKernel extracts the packages' vmlinuz and modules: as vmlinuz, lib/modules/RELEASE below full. It returns the packages' size.
func (a *apt) unpackKernel(ctx context.Context, debs []string, full string) (fetched int64, err error) {
	if err := os.Mkdir(full, 0o755); err != nil {
		return 0, fmt.Errorf("unpack the kernel: %w", err)
	}
	root, err := os.OpenRoot(full)
	if err != nil {
		return 0, fmt.Errorf("unpack the kernel: %w", err)
	}
	defer root.Close()
	for _, deb := range debs {
		if i, err := os.Stat(deb); err == nil {
			fetched += i.Size()
		}
		if err := a.unpack(ctx, deb, func(tar io.Reader) error { return untar(tar, root, placeOfKernel) }); err != nil {
			return 0, err
		}
	}
	return fetched, nil
}

// placeOfKernel puts the image at vmlinuz, whether a package has it in /boot or, from 7.x on, among the modules.
func placeOfKernel(name string) string {
	name = strings.TrimPrefix(name, "usr/")
	base := filepath.Base(name)
	switch {
	case strings.HasPrefix(name, "boot/vmlinuz-"), strings.HasPrefix(name, "lib/modules/") && base == "vmlinuz":
		return "vmlinuz"
	case strings.HasPrefix(name, "lib/modules/"):
		return name
	}
	return ""
}

// keepKernel copies the image and the modules that a VM may need to dir and writes kernel.json. It returns how many modules it kept.
func keepKernel(ctx context.Context, full string, k Kernel, dir string) (kept int, err error) {
	if err := os.Rename(filepath.Join(full, "vmlinuz"), filepath.Join(dir, "vmlinuz")); err != nil {
		return 0, fmt.Errorf("package %s: %w", k.Package, err)
	}
	kept, err = keepModules(ctx, full, k.Release, dir)
	if err != nil {
		return 0, err
	}
	k.Kept = keptModules()
	b, err := json.Marshal(k)
	if err != nil {
		return 0, fmt.Errorf("write kernel.json: %w", err)
	}
	return kept, os.WriteFile(filepath.Join(dir, "kernel.json"), append(b, '\n'), 0o644)
}
