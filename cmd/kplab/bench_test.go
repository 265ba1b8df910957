package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/bench"
	"kplab/results/schema"
	"kplab/results/schema/schematest"
)

// benched runs kplab bench, which must measure everything, and returns its folder's book and what it printed.
func benched(t *testing.T, args ...string) (bench.Book, string, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	r := kplab(t, append([]string{"bench", "--out", dir, "--count", "1", "--samples", "20", "--min-sync-period", "10ms"}, args...)...)
	require.Zero(t, r.status, "%s\n%s", r.stdout, r.stderr)
	var book bench.Book
	text, err := os.ReadFile(filepath.Join(dir, bench.SettingsFile))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &book))
	assert.NoError(t, schematest.Strict(t, schema.Bench).Validate(schematest.Document(t, text)))
	assert.Empty(t, book.Failures)
	figures, err := os.ReadFile(filepath.Join(dir, bench.FiguresFile))
	require.NoError(t, err)
	return book, string(figures), r.stdout
}

func TestBenchOnHost(t *testing.T) {
	needKubeProxy(t)
	book, figures, stdout := benched(t, "sync", "connect", "--mode", "iptables,nftables", "--kernel", "host", "--services", "5")
	require.Len(t, book.Machines, 1)
	assert.Equal(t, 2, book.Machines[0].Trials)
	assert.Contains(t, figures, "BenchmarkSync/event=restart/services=5/endpoints=2/mode=nftables 1 ")
	assert.Contains(t, figures, "BenchmarkConnect/path=clusterip/position=last/services=5/mode=iptables 20 ")
	assert.Contains(t, stdout, "The lab's own cost on host")
}

// TestBenchInVM measures where events come over a serial port, in the mode that few hosts have.
func TestBenchInVM(t *testing.T) {
	if os.Getenv("KPLAB_TEST_VM") != "all" {
		t.Skip("an emulated kernel takes many minutes for it: set KPLAB_TEST_VM=all")
	}
	needKubeProxy(t)
	book, figures, _ := benched(t, "sync", "connect", "--mode", "ipvs,nftables", "--kernel", "debian-12", "--services", "3", "--endpoints", "1")
	require.Len(t, book.Machines, 1)
	assert.Equal(t, "debian-12", book.Machines[0].Kernel)
	assert.Contains(t, figures, "BenchmarkSync/event=change-endpoint/services=3/endpoints=1/mode=ipvs 1 ")
	assert.Contains(t, figures, "BenchmarkConnect/path=nodeport/position=first/services=3/mode=nftables 20 ")
}
