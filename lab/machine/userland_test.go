package machine

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUserlandNames(t *testing.T) {
	assert.Equal(t, []string{"debian-12", "debian-13", "host"}, UserlandNames())
	root, err := Cache{}.Userland(t.Context(), "host")
	require.NoError(t, err)
	assert.Equal(t, "/", root)
	_, err = Cache{}.Userland(t.Context(), "debian-14")
	require.ErrorContains(t, err, `did you mean "debian-12"?`)
}

func TestVersions(t *testing.T) {
	outputs := map[string]string{
		"nft":       "nftables v1.0.6 (Lester Gooch #5)\n",
		"iptables":  "iptables v1.8.9 (nf_tables)\n",
		"ipset":     "ipset v7.17, protocol version: 7\n",
		"conntrack": "conntrack v1.4.7 (conntrack-tools)\n",
		"kmod":      "kmod version 30\n+ZSTD +XZ\n",
		"ip":        "ip utility, iproute2-6.1.0, libbpf 1.1.2\n",
	}
	got := Versions(t.Context(), func(_ context.Context, argv ...string) (string, error) {
		if out, ok := outputs[argv[0]]; ok {
			return out, nil
		}
		return "", errors.New("exit status 2")
	})
	assert.Equal(t, map[string]string{
		"nft": "1.0.6", "iptables": "1.8.9 (nf_tables)", "ipset": "7.17", "conntrack": "1.4.7", "kmod": "30", "iproute2": "6.1.0",
	}, got)
}

func TestUpstreamVersion(t *testing.T) {
	assert.Equal(t, "1.31", upstreamVersion("1%3a1.31-1+b1_amd64.deb"))
	assert.Equal(t, "7.17", upstreamVersion("7.17-1_amd64.deb"))
}

// TestUntarMergesUsr checks that files of packages that still ship /bin land where the link leads, and that nothing leaves the tree.
func TestUntarMergesUsr(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, content string) {
		h.Size = int64(len(content))
		require.NoError(t, w.WriteHeader(&h))
		_, err := w.Write([]byte(content))
		require.NoError(t, err)
	}
	add(tar.Header{Name: "./bin/", Typeflag: tar.TypeDir, Mode: 0o755}, "")
	add(tar.Header{Name: "./bin/bash", Typeflag: tar.TypeReg, Mode: 0o4755}, "shell")
	add(tar.Header{Name: "./bin/rbash", Typeflag: tar.TypeSymlink, Linkname: "bash"}, "")
	add(tar.Header{Name: "./bin/again", Typeflag: tar.TypeLink, Linkname: "./bin/bash"}, "")
	add(tar.Header{Name: "./usr/share/doc/bash/copyright", Typeflag: tar.TypeReg, Mode: 0o644}, "words")
	add(tar.Header{Name: "../outside", Typeflag: tar.TypeReg, Mode: 0o644}, "")
	require.NoError(t, w.Close())

	dir := filepath.Join(t.TempDir(), "tree")
	require.NoError(t, os.Mkdir(dir, 0o755))
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	require.NoError(t, foundation(root))
	require.NoError(t, untar(&b, root, placeInUserland))

	for _, name := range []string{"bin/bash", "bin/rbash", "bin/again"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, "shell", string(content))
	}
	info, err := os.Stat(filepath.Join(dir, "usr/bin/bash"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode())
	assert.NoDirExists(t, filepath.Join(dir, "usr/share/doc"))
	assert.NoFileExists(t, filepath.Join(filepath.Dir(dir), "outside"))
}

func TestCacheEnsure(t *testing.T) {
	c := Cache{Root: t.TempDir()}
	dest := c.entry("kernels", "sid:7.2")
	failure := errors.New("no space")
	err := c.ensure(dest, func(string, string) error { return failure })
	require.ErrorIs(t, err, failure)
	assert.NoDirExists(t, dest)

	// What a killed process left must not get in.
	left := filepath.Join(filepath.Dir(dest), ".sid_7.2.part")
	require.NoError(t, os.MkdirAll(filepath.Join(left, "half"), 0o755))
	made := 0
	for range 2 {
		require.NoError(t, c.ensure(dest, func(dir, scratch string) error {
			made++
			assert.DirExists(t, scratch)
			return os.WriteFile(filepath.Join(dir, "whole"), nil, 0o600)
		}))
	}
	assert.Equal(t, 1, made)
	entries, err := os.ReadDir(filepath.Dir(dest))
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	assert.ElementsMatch(t, []string{".sid_7.2.lock", "sid_7.2"}, names)
	assert.NoDirExists(t, filepath.Join(dest, "half"))
}

func TestCheckNamesRemedies(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	remedies := map[string]string{}
	for _, n := range Check(Cache{Root: filepath.Join(t.TempDir(), "not", "there")}) {
		assert.NotEmpty(t, n.For)
		assert.NotEmpty(t, n.Detail)
		if !n.OK {
			remedies[n.Name] = n.Remedy
		}
	}
	assert.Equal(t, "apt-get install kmod", remedies["depmod"])
	assert.Equal(t, "apt-get install apt", remedies["apt-get"])
	assert.NotContains(t, remedies, "disk", "there is room, and the folder need not exist")
}

func TestTail(t *testing.T) {
	var lines []string
	l := &tail{keep: 8, line: func(s string) { lines = append(lines, s) }}
	for _, piece := range []string{"on", "e\r\ntwo\nthr", "ee\n"} {
		_, err := l.Write([]byte(piece))
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"one", "two", "three"}, lines)
	assert.Equal(t, "o\nthree\n", l.text())
	assert.Equal(t, "three", l.last(1))
}

func TestTailAround(t *testing.T) {
	l := &tail{}
	for i := range 50 {
		fmt.Fprintln(l, "line", i)
	}
	assert.Equal(t, "line 15\nline 16\nline 17\nline 18\nline 19\nline 20\nline 21", l.around("line 20", 7))
	assert.Equal(t, "line 0", l.around("line 2", 1))
	assert.Equal(t, "line 49", l.last(1))
}
