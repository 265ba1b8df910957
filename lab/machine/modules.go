package machine

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// wantedModules are the modules, by path below kernel/, that a VM keeps; what they depend on comes with them.
func wantedModules() []string {
	return []string{
		"net/netfilter/", "net/ipv4/", "net/ipv6/", "net/bridge/", "net/sctp/", "net/8021q/", "net/sched/", "net/802/", "net/llc/", "net/packet/",
		"drivers/net/bonding/", "drivers/net/dummy.", "drivers/net/geneve.", "drivers/net/ifb.", "drivers/net/ipvlan/", "drivers/net/macvlan.",
		"drivers/net/tun.", "drivers/net/veth.", "drivers/net/vrf.", "drivers/net/vxlan",
		"drivers/virtio/", "drivers/char/virtio_console.", "drivers/char/hw_random/virtio-rng.",
		"fs/overlayfs/",
	}
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
	for _, f := range []string{"modules.builtin", "modules.builtin.modinfo", "modules.order"} {
		if err := os.Rename(filepath.Join(from, f), filepath.Join(to, f)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return 0, fmt.Errorf("keep modules: %w", err)
		}
	}
	dep, err := os.ReadFile(filepath.Join(from, "modules.dep"))
	if err != nil {
		return 0, fmt.Errorf("keep modules: %w", err)
	}
	for _, m := range closure(string(dep), wantedModules()) {
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
		for _, w := range wanted {
			if strings.HasPrefix(module, "kernel/"+w) {
				add(module)
				for _, n := range strings.Fields(needs) {
					add(n)
				}
				break
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
