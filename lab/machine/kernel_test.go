package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseKernel(t *testing.T) {
	for _, tt := range []struct {
		name string
		want KernelSource
		err  string
	}{
		{name: "host", want: KernelSource{Name: "host"}},
		{name: "debian-12", want: KernelSource{Name: "debian-12", Suite: "bookworm", Series: "6.1"}},
		{name: "bookworm", want: KernelSource{Name: "debian-12", Suite: "bookworm", Series: "6.1"}},
		{name: "bookworm:6.1", want: KernelSource{Name: "debian-12", Suite: "bookworm", Series: "6.1"}},
		{name: "bookworm:6.12", want: KernelSource{Name: "bookworm:6.12", Suite: "bookworm", Series: "6.12"}},
		{name: "debian-12:6.12", want: KernelSource{Name: "bookworm:6.12", Suite: "bookworm", Series: "6.12"}},
		{name: "trixie-backports", want: KernelSource{Name: "trixie-backports", Suite: "trixie-backports"}},
		{name: "trixie-backports:6.18", want: KernelSource{Name: "trixie-backports:6.18", Suite: "trixie-backports", Series: "6.18"}},
		{name: "/boot/vmlinuz", want: KernelSource{Name: "/boot/vmlinuz", Path: "/boot/vmlinuz"}},
		{name: "debian-21", err: `did you mean "debian-11"?`},
		{name: "nonsense", err: "known are host, debian-11"},
		{name: "sid:", err: "names no version"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseKernel(tt.name)
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestInSeries(t *testing.T) {
	for _, tt := range []struct {
		release, series string
		want            bool
	}{
		{"6.1.0-57-cloud-amd64", "", true},
		{"6.1.0-57-cloud-amd64", "6.1", true},
		{"6.1.0-57-cloud-amd64", "6.1.0-57", true},
		{"6.1.0-57-cloud-amd64", "6.1.0-5", false},
		{"6.12.118+deb13-cloud-amd64", "6.1", false},
		{"6.12.118+deb13-cloud-amd64", "6", true},
	} {
		assert.Equal(t, tt.want, inSeries(tt.release, tt.series), "%s in %s", tt.release, tt.series)
	}
}

func TestParseKernelPackages(t *testing.T) {
	const shown = `Package: linux-image-6.1-cloud-amd64
Version: 6.1.192-3~deb11u1
Depends: linux-image-6.1.0-0.deb11.52-cloud-amd64 (= 6.1.192-3~deb11u1)

Package: linux-image-5.10.0-9-cloud-amd64
Version: 5.10.70-1
Depends: kmod, linux-base (>= 4.3~), initramfs-tools (>= 0.120+deb8u2) | linux-initramfs-tool

Package: linux-image-5.10.0-46-cloud-amd64
Version: 5.10.262-1
Depends: kmod, linux-base (>= 4.3~), initramfs-tools (>= 0.120+deb8u2) | linux-initramfs-tool

Package: linux-image-7.2.13+deb14-cloud-amd64
Version: 7.2.13-1
Depends: dracut | initramfs-tools (>= 0.120+deb8u2), linux-base-7.2.13+deb14-cloud-amd64 (= 7.2.13-1), linux-binary-7.2.13+deb14-cloud-amd64 (= 7.2.13-1), linux-modules-7.2.13+deb14-cloud-amd64 (= 7.2.13-1)
`
	assert.Equal(t, []kernelPackage{
		{"linux-image-7.2.13+deb14-cloud-amd64", "7.2.13-1", []string{
			"linux-base-7.2.13+deb14-cloud-amd64=7.2.13-1", "linux-binary-7.2.13+deb14-cloud-amd64=7.2.13-1", "linux-modules-7.2.13+deb14-cloud-amd64=7.2.13-1",
		}},
		{name: "linux-image-5.10.0-46-cloud-amd64", version: "5.10.262-1"},
		{name: "linux-image-5.10.0-9-cloud-amd64", version: "5.10.70-1"},
	}, parseKernelPackages(shown))
}

func TestPlaceOfKernel(t *testing.T) {
	for name, want := range map[string]string{
		"boot/vmlinuz-6.1.0-57-cloud-amd64":                      "vmlinuz",
		"usr/lib/modules/7.2.13+deb14-cloud-amd64/vmlinuz":       "vmlinuz",
		"boot/System.map-6.1.0-57-cloud-amd64":                   "",
		"lib/modules/6.1.0/kernel/net/sctp/sctp.ko":              "lib/modules/6.1.0/kernel/net/sctp/sctp.ko",
		"usr/lib/modules/6.12.1/kernel/net/netfilter/x.ko.xz":    "lib/modules/6.12.1/kernel/net/netfilter/x.ko.xz",
		"usr/share/doc/linux-image-6.1.0-57-cloud-amd64/NEWS.gz": "",
	} {
		assert.Equal(t, want, placeOfKernel(name), name)
	}
}

func TestClosure(t *testing.T) {
	const dep = `kernel/net/netfilter/ipvs/ip_vs_rr.ko: kernel/net/netfilter/ipvs/ip_vs.ko kernel/lib/libcrc32c.ko
kernel/net/netfilter/ipvs/ip_vs.ko.xz: kernel/lib/libcrc32c.ko
kernel/lib/libcrc32c.ko:
kernel/drivers/net/dummy.ko.zst:
kernel/drivers/net/dummy_hcd.ko:
kernel/drivers/net/wireless/ath.ko:
`
	assert.ElementsMatch(t, []string{
		"kernel/net/netfilter/ipvs/ip_vs_rr.ko", "kernel/net/netfilter/ipvs/ip_vs.ko", "kernel/net/netfilter/ipvs/ip_vs.ko.xz",
		"kernel/lib/libcrc32c.ko", "kernel/drivers/net/dummy.ko.zst",
	}, closure(dep, wantedModules()))
}

func TestLocalKernel(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		return path
	}
	image := write("boot/vmlinuz-6.9.1")
	_, err := Cache{}.Kernel(t.Context(), image)
	require.ErrorContains(t, err, "lib/modules/RELEASE")

	write("lib/modules/6.9.0/modules.dep")
	write("lib/modules/6.9.1/modules.dep")
	k, err := Cache{}.Kernel(t.Context(), image)
	require.NoError(t, err)
	assert.Equal(t, Kernel{Name: image, Release: "6.9.1", Image: image, Modules: filepath.Join(dir, "lib/modules/6.9.1")}, k)

	_, err = Cache{}.Kernel(t.Context(), filepath.Join(dir, "boot/absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestKernelsListsCacheAndNames(t *testing.T) {
	c := Cache{Root: t.TempDir()}
	// The second is of a kplab that took other modules along: its name alone tells of no kernel that can be booted here.
	for folder, text := range map[string]string{
		"sid_7.2-" + keptModules(): `{"name":"sid:7.2","release":"7.2.13","package":"p 1","kept":"` + keptModules() + `"}`,
		"sid_7.1":                  `{"name":"sid:7.1","release":"7.1.3","package":"p 1"}`,
	} {
		dir := filepath.Join(c.Root, "kernels", folder)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "kernel.json"), []byte(text), 0o600))
	}
	list, err := Kernels(c)
	require.NoError(t, err)
	var names []string
	for _, k := range list {
		names = append(names, k.Name)
		assert.Equal(t, k.Name == "host" || k.Name == "sid:7.2", k.Cached, k.Name)
	}
	assert.Equal(t, []string{"host", "debian-11", "debian-12", "debian-13", "trixie-backports", "sid", "sid:7.2"}, names)
}

func TestParseMirrors(t *testing.T) {
	for _, tt := range []struct {
		name, targets string
		want          mirrors
	}{
		{"labelled", "http://m/x/ Debian\nhttp://s/y/ Debian-Security\nhttp://m/other/ Google\n", mirrors{"http://m/x/", "http://s/y/"}},
		{"before the first update", "http://m/debian $(LABEL)\nhttp://m/debian-security \n", mirrors{"http://m/debian", "http://m/debian-security"}},
		{"no security", "http://m/debian/ Debian\n", mirrors{"http://m/debian/", "http://m/debian-security"}},
		{"not Debian", "http://m/ubuntu/ Ubuntu\n", mirrors{}},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, parseMirrors(tt.targets)) })
	}
}

func TestSourcesDemandDebiansSignature(t *testing.T) {
	m := mirrors{main: "http://m/debian", security: "http://m/debian-security"}
	for suite, lines := range map[string]int{"bookworm": 2, "trixie-backports": 3, "sid": 1} {
		got := strings.Split(strings.TrimSpace(sources(suite, m)), "\n")
		assert.Len(t, got, lines, suite)
		for _, l := range got {
			assert.Contains(t, l, "[signed-by="+keyring+"]")
		}
	}
}
