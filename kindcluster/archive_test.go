package kindcluster

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// contents reads a tar file: name -> content, or the target of a link.
func contents(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	found := map[string]string{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return found
		}
		require.NoError(t, err)
		assert.Zero(t, h.Uid)
		assert.Empty(t, h.Uname)
		data, err := io.ReadAll(tr)
		require.NoError(t, err)
		found[h.Name] = string(data) + h.Linkname
	}
}

func TestWriteArchive(t *testing.T) {
	tree := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(tree, "usr/sbin"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(tree, "usr/sbin/nft"), []byte("tool"), 0o755))
	require.NoError(t, os.Symlink("usr/sbin", filepath.Join(tree, "sbin")))
	command := filepath.Join(t.TempDir(), "kube-proxy")
	require.NoError(t, os.WriteFile(command, []byte("proxy"), 0o755))
	path := filepath.Join(t.TempDir(), "image.tar")
	l := layer{trees: []string{tree}, files: map[string]string{"usr/local/bin/kube-proxy": command}}
	require.NoError(t, writeArchive(path, "registry.k8s.io/kube-proxy:v1.37.2", []string{"/usr/local/bin/kube-proxy"}, l))

	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	image := contents(t, f)
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	require.NoError(t, json.Unmarshal([]byte(image["manifest.json"]), &manifest))
	require.Len(t, manifest, 1)
	assert.Equal(t, []string{"registry.k8s.io/kube-proxy:v1.37.2"}, manifest[0].RepoTags)
	var config struct {
		Config struct{ Entrypoint []string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(image[manifest[0].Config]), &config))
	assert.Equal(t, []string{"/usr/local/bin/kube-proxy"}, config.Config.Entrypoint)
	layerText := image[manifest[0].Layers[0]]
	sum := sha256.Sum256([]byte(layerText))
	assert.Equal(t, []string{"sha256:" + hex.EncodeToString(sum[:])}, config.RootFS.DiffIDs)
	files := contents(t, strings.NewReader(layerText))
	assert.Equal(t, "tool", files["usr/sbin/nft"])
	assert.Equal(t, "usr/sbin", files["sbin"])
	assert.Equal(t, "proxy", files["usr/local/bin/kube-proxy"])

	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, left, 1, "no scratch folder stays")
	assert.Error(t, writeArchive(path, "x", nil, layer{files: map[string]string{"a": "/nonexistent"}}))
}
