package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"kplab/lab"
)

// UserlandHost names the machine's own tools, unpinned.
const UserlandHost = "host"

// userlandPackages are what kube-proxy calls, what a node has beside it, and enough of a shell to look around.
func userlandPackages() []string {
	return []string{
		"nftables", "iptables", "ipset", "ipvsadm", "conntrack", "kmod", // called by kube-proxy
		"netbase", // /etc/protocols: without it ipset does not know tcp
		"iproute2", "tcpdump", "bash", "busybox-static",
	}
}

// unwanted are dependencies that only installing needs, or that only parts need which nobody calls here.
func unwanted(pkg string) bool {
	if pkg == "perl" || strings.HasPrefix(pkg, "perl-") || strings.HasPrefix(pkg, "libperl") || strings.HasPrefix(pkg, "libpam") {
		return true
	}
	return slices.Contains([]string{
		"adduser", "debconf", "debianutils", "dpkg", "lsb-base", "mawk", "passwd", "sysvinit-utils", "tar",
		"libaudit-common", "libaudit1", "libsemanage-common", "libsemanage2", "libsepol2",
	}, pkg)
}

// UserlandNames lists the userlands that [Cache.Userland] knows.
func UserlandNames() []string {
	var names []string
	for _, r := range releases() {
		if r.userland {
			names = append(names, r.name)
		}
	}
	return append(names, UserlandHost)
}

// Userland returns the root folder of a userland ("debian-12", "debian-13", "host" or a release's suite), fetching it if it is not
// in the cache yet. The host's is "/". It needs no root.
func (c Cache) Userland(ctx context.Context, name string) (root string, err error) {
	if name == UserlandHost {
		return "/", nil
	}
	i := slices.IndexFunc(releases(), func(r debianRelease) bool { return r.userland && (r.name == name || r.suite == name) })
	if i < 0 {
		return "", fmt.Errorf("unknown userland %q%s", name, lab.Suggest(name, UserlandNames()))
	}
	r := releases()[i]
	root = c.entry("userlands", r.name)
	err = c.ensure(root, func(dir, scratch string) error { return c.makeUserland(ctx, r, dir, scratch) })
	if err != nil {
		return "", fmt.Errorf("userland %s: %w", r.name, err)
	}
	return root, nil
}

func (c Cache) makeUserland(ctx context.Context, r debianRelease, dir, scratch string) error {
	started := time.Now()
	c.progress("userland %s: fetching Debian's index of %s", r.name, r.suite)
	a, err := newApt(ctx, scratch, r.suite)
	if err != nil {
		return err
	}
	c.progress("userland %s: fetching packages (%s so far)", r.name, seconds(started))
	debs, err := a.install(ctx, userlandPackages()...)
	if err != nil {
		return err
	}
	var (
		fetched  int64
		upstream string // of ipvsadm, which cannot be asked
	)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("make the userland: %w", err)
	}
	defer root.Close()
	if err := foundation(root); err != nil {
		return fmt.Errorf("make the userland: %w", err)
	}
	for _, deb := range debs {
		pkg, version, _ := strings.Cut(filepath.Base(deb), "_")
		if pkg == "ipvsadm" {
			upstream = upstreamVersion(version)
		}
		if i, err := os.Stat(deb); err == nil {
			fetched += i.Size()
		}
		if unwanted(pkg) {
			continue
		}
		if err := a.unpack(ctx, deb, func(tar io.Reader) error { return untar(tar, root, placeInUserland) }); err != nil {
			return err
		}
	}
	if err := finish(root); err != nil {
		return fmt.Errorf("finish the userland: %w", err)
	}
	probes := toolProbes()
	delete(probes, "ipvsadm") // says nothing without IPVS, and would load its module
	tools, err := versions(ctx, chroot(dir, syscall.CLONE_NEWNET), probes)
	if err != nil {
		return fmt.Errorf("try the userland's tools: %w", err)
	}
	tools["ipvsadm"] = upstream
	record, err := json.Marshal(tools)
	if err != nil {
		return fmt.Errorf("record the userland's tools: %w", err)
	}
	if err := root.WriteFile(toolsFile, append(record, '\n'), 0o644); err != nil {
		return fmt.Errorf("record the userland's tools: %w", err)
	}
	c.progress("userland %s: fetched %s, keeping %s, nft %s, iptables %s, ipset %s, in %s", r.name, megabytes(fetched), megabytes(treeSize(dir)),
		tools["nft"], tools["iptables"], tools["ipset"], seconds(started))
	return nil
}

// upstreamVersion takes a package's version, as the name of its file has it, for the version of what is in it: "1%3a1.31-1+b1_amd64.deb"
// is 1.31.
func upstreamVersion(version string) string {
	if _, after, ok := strings.Cut(version, "%3a"); ok {
		version = after
	}
	version, _, _ = strings.Cut(version, "-")
	return version
}

// placeInUserland merges /usr and leaves out what no tool reads.
func placeInUserland(name string) string {
	first, rest, _ := strings.Cut(name, "/")
	switch first {
	case "bin", "sbin", "lib", "lib64":
		if rest == "" {
			return ""
		}
		name = "usr/" + name
	}
	for _, p := range []string{
		"usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian", "usr/share/bug", "usr/share/bash-completion",
		"usr/share/initramfs-tools", "usr/share/gcc", "usr/share/gdb", "usr/share/common-licenses", "usr/share/base-files", "usr/share/keyrings",
		"usr/lib/systemd", "usr/include", "usr/lib/x86_64-linux-gnu/gconv", "usr/lib/aarch64-linux-gnu/gconv", "usr/lib/locale",
		"etc/init.d", "etc/default", "etc/cron.d", "etc/apparmor.d", "etc/systemd", "etc/apt", "etc/skel", "etc/update-motd.d", "var",
		"usr/lib/initcpio", "usr/share/iproute2/examples",
	} {
		if name == p || strings.HasPrefix(name, p+"/") {
			return ""
		}
	}
	return name
}
