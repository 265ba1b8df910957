package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
	"kplab/results"
)

// TestKind runs scenarios on a real cluster. It needs an engine that answers (kplab kind engine).
func TestKind(t *testing.T) {
	if os.Getenv("KPLAB_TEST_KIND") == "" {
		t.Skip("makes a kind cluster: set KPLAB_TEST_KIND=1, as make test-kind does")
	}
	dir := t.TempDir()
	r := kplab(t, "run", "clusterip-basics", "nodeport-localhost", "nodeport-secondary-address", "rollout-one-node",
		"--substrate", "kind", "--mode", "iptables,nftables", "--out", dir+"/run")
	require.Zero(t, r.status, "%s\n%s", r.stdout, r.stderr)
	run, err := results.Read(dir + "/run")
	require.NoError(t, err)
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
