package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/kindcluster"
	"kplab/lab"
	"kplab/results"
)

// published returns the node image that the lab builds as somebody else would keep it: in a registry, by its digest.
func published(t *testing.T) string {
	all, err := kindImages(t.Context(), "", 1, func(line string) { t.Log(line) })
	require.NoError(t, err)
	images := all[0]
	built, err := images.Node(t.Context(), lab.DefaultKubeProxy)
	require.NoError(t, err)
	archive := filepath.Join(t.TempDir(), "node.tar")
	_, err = images.Engine.Run(t.Context(), "save", "-o", archive, built)
	require.NoError(t, err)
	image, err := tarball.ImageFromPath(archive, nil)
	require.NoError(t, err)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithBlobHandler(registry.NewDiskBlobHandler(t.TempDir()))))
	t.Cleanup(server.Close)
	repository, err := name.NewRepository(strings.TrimPrefix(server.URL, "http://") + "/node")
	require.NoError(t, err)
	digest, err := image.Digest()
	require.NoError(t, err)
	at := repository.Digest(digest.String())
	require.NoError(t, remote.Write(at, image, remote.WithContext(t.Context())))
	return at.String()
}

// TestKind runs scenarios on a real cluster, of a node image that is in a registry. It needs an engine that answers (kplab kind engine).
func TestKind(t *testing.T) {
	if os.Getenv("KPLAB_TEST_KIND") == "" {
		t.Skip("makes a kind cluster: set KPLAB_TEST_KIND=1, as make test-kind does")
	}
	dir, image := t.TempDir(), published(t)
	r := kplab(t, "run", "--node-image", image, "clusterip-basics", "nodeport-localhost", "nodeport-secondary-address", "rollout-one-node",
		"--substrate", "kind", "--mode", "iptables,nftables", "--out", dir+"/run")
	require.Zero(t, r.status, "%s\n%s", r.stdout, r.stderr)
	run, err := results.Read(dir + "/run")
	require.NoError(t, err)
	assert.Contains(t, r.stderr, "pull of "+image)
	require.Len(t, run.Cells, 8)
	for _, cell := range run.Cells {
		assert.Equal(t, lab.Pass, cell.Verdict, "%s: %s", cell.Cell.ID(), cell.Reason)
		assert.Equal(t, "kind", cell.Cell.Substrate)
		assert.Equal(t, cell.Scenario == "rollout-one-node", len(cell.Gaps) > 0, "%s: what traffic met during a rollout is kept", cell.Cell.ID())
	}
	removed, err := removeLeftoverClusters(t.Context(), "")
	require.NoError(t, err)
	assert.Empty(t, removed, "the run has deleted its cluster")
}

// TestKindTwoEngines has two clusters, each on an engine of its own, share the cells of a run.
func TestKindTwoEngines(t *testing.T) {
	if os.Getenv("KPLAB_TEST_KIND") == "" {
		t.Skip("makes two kind clusters: set KPLAB_TEST_KIND=1, as make test-kind does")
	}
	folder, err := kindFolder("")
	require.NoError(t, err)
	second := kindcluster.EngineFolder(folder, 2)
	had, err := kindcluster.EngineRuns(second)
	require.NoError(t, err)
	r := kplab(t, "kind", "engine", "--count", "2")
	require.Zero(t, r.status, "%s\n%s", r.stdout, r.stderr)
	t.Cleanup(func() {
		if !had {
			assert.NoError(t, kindcluster.StopEngine(context.Background(), second))
		}
	})
	dir := t.TempDir()
	r = kplab(t, "run", "clusterip-ping", "--substrate", "kind", "--mode", "iptables,nftables", "--repeat", fmt.Sprint(cellsPerCluster), "--out", dir+"/run")
	require.Zero(t, r.status, "%s\n%s", r.stdout, r.stderr)
	assert.Len(t, regexp.MustCompile(`cluster kplab-\d+(-2)? is ready`).FindAllString(r.stderr, -1), 2)
	run, err := results.Read(dir + "/run")
	require.NoError(t, err)
	require.Equal(t, 2, len(run.Cells))
	for _, cell := range run.Cells {
		assert.Equal(t, cellsPerCluster, len(cell.Repeats), "repeats of %s", cell.Cell.ID())
		for _, again := range cell.Repeats {
			assert.Equal(t, lab.Pass, again.Verdict, "%s, repeat %d: %s", cell.Cell.ID(), again.Repeat, again.Reason)
		}
	}
	removed, err := removeLeftoverClusters(t.Context(), "")
	require.NoError(t, err)
	assert.Empty(t, removed, "the run has deleted its clusters")
}
