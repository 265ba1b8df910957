package machine

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// wantedModules are the modules, by path below kernel/ up to the dot of their name, that a VM takes along: netfilter, ipvs, and the links,
// tunnels and queueing that an env may be built of. What they depend on comes with them. Each megabyte costs a guest under TCG some 25 ms.
func wantedModules() []string {
	return []string{
		"net/netfilter/*", "net/netfilter/ipset/*", "net/netfilter/ipvs/*",
		"net/ipv4/netfilter/*", "net/ipv6/netfilter/*", "net/bridge/*", "net/bridge/netfilter/*",
		"net/ipv4/*_diag", "net/ipv4/ip_tunnel", "net/ipv4/ipip", "net/ipv6/ip6_tunnel", "net/ipv6/sit",
		"net/sctp/*", "net/8021q/*", "net/packet/*",
		"net/sched/sch_netem", "net/sched/sch_ingress", "net/sched/sch_tbf", "net/sched/sch_htb", "net/sched/sch_prio", "net/sched/sch_fq*",
		"net/sched/cls_u32", "net/sched/cls_matchall", "net/sched/act_mirred", "net/sched/act_gact",
		"drivers/net/dummy", "drivers/net/ifb", "drivers/net/macvlan", "drivers/net/tun", "drivers/net/veth", "drivers/net/vrf", "drivers/net/vxlan/*", "drivers/net/vxlan",
		"drivers/virtio/virtio_pci", "drivers/char/virtio_console",
	}
}

// isWanted reports whether a module's path below kernel/ is one of the patterns, each as [path.Match] takes it.
func isWanted(module string, patterns []string) bool {
	stem, _, _ := strings.Cut(path.Base(module), ".")
	name := path.Join(path.Dir(module), stem)
	return slices.ContainsFunc(patterns, func(p string) bool { ok, err := path.Match(p, name); return err == nil && ok })
}

// keptModules is a digest of which modules a kernel in the cache has.
func keptModules() string {
	sum := sha256.Sum256([]byte(strings.Join(append(wantedModules(), diskModules()...), " ")))
	return hex.EncodeToString(sum[:6])
}

// keepModules copies the wanted modules of full/lib/modules/RELEASE to dir/lib/modules/RELEASE, decompressed so that the guest need not, and makes
// modules.dep for both. It returns how many it kept.
func keepModules(ctx context.Context, full, release, dir string) (kept int, err error) {
	if _, err := exec.LookPath("depmod"); err != nil {
		return 0, fmt.Errorf("a kernel's modules need depmod: %w (apt-get install kmod)", err)
	}
	if err := depmod(ctx, full, release); err != nil {
		return 0, err
	}
	from, to := filepath.Join(full, "lib/modules", release), filepath.Join(dir, "lib/modules", release)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return 0, fmt.Errorf("keep modules: %w", err)
	}
	// Without modules.builtin, modprobe fails for what is built in.
	for _, f := range []string{"modules.builtin", "modules.builtin.modinfo", "modules.order"} {
		if err := os.Rename(filepath.Join(from, f), filepath.Join(to, f)); err != nil {
			return 0, fmt.Errorf("keep modules: %w", err)
		}
	}
	dep, err := os.ReadFile(filepath.Join(from, "modules.dep"))
	if err != nil {
		return 0, fmt.Errorf("keep modules: %w", err)
	}
	for _, m := range closure(string(dep), append(wantedModules(), diskModules()...)) {
		if err := decompressModule(filepath.Join(from, m), filepath.Join(to, m)); err != nil {
			return 0, fmt.Errorf("keep module %s: %w", m, err)
		}
		kept++
	}
	return kept, depmod(ctx, dir, release)
}

func depmod(ctx context.Context, base, release string) error {
	_, err := command(ctx, "", nil, "depmod", "-b", base, release)
	return err
}

// closure returns the modules of a modules.dep that are wanted and all that they depend on.
func closure(dep string, wanted []string) []string {
	seen := map[string]bool{}
	var list []string
	add := func(m string) {
		if !seen[m] {
			seen[m] = true
			list = append(list, m)
		}
	}
	for line := range strings.Lines(dep) {
		module, needs, _ := strings.Cut(strings.TrimSpace(line), ":")
		if isWanted(strings.TrimPrefix(module, "kernel/"), wanted) {
			add(module)
			for _, n := range strings.Fields(needs) {
				add(n)
			}
		}
	}
	return list
}

// decompressModule copies a module; one that is compressed loses the suffix that says so.
func decompressModule(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	var r io.Reader = in
	switch filepath.Ext(from) {
	case ".xz":
		to = strings.TrimSuffix(to, ".xz")
		if r, err = xz.NewReader(in); err != nil {
			return err
		}
	case ".gz":
		to = strings.TrimSuffix(to, ".gz")
		if r, err = gzip.NewReader(in); err != nil {
			return err
		}
	case ".zst":
		to = strings.TrimSuffix(to, ".zst")
		d, err := zstd.NewReader(in)
		if err != nil {
			return err
		}
		defer d.Close()
		r = d
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, r)
	return errors.Join(err, out.Close())
}
