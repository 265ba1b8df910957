package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
	"kplab/lab/sabotage"
	"kplab/results"
	"kplab/results/schema"
	"kplab/results/schema/schematest"
)

// selftestOf runs kplab selftest on the host kernel and returns what it wrote.
func selftestOf(t *testing.T, out string, args ...string) (ran, selftestReport) {
	t.Helper()
	r := kplab(t, append([]string{"selftest", "--kernel", "host", "--out", out}, args...)...)
	text, err := os.ReadFile(filepath.Join(out, selftestFile))
	require.NoError(t, err, "%s\n%s", r.stdout, r.stderr)
	var report selftestReport
	require.NoError(t, json.Unmarshal(text, &report))
	assert.NoError(t, schematest.Strict(t, schema.Selftest).Validate(schematest.Document(t, text)))
	return r, report
}

// TestSabotage takes kube-proxy out of each scenario: none may pass without it.
func TestSabotage(t *testing.T) {
	needKubeProxy(t)
	out := filepath.Join(t.TempDir(), "out")
	r, report := selftestOf(t, out, "clusterip-basics", "nodeport-secondary-address", "conntrack-invalid-reset", "kernel-floor", "--mode", "iptables,nftables")
	assert.Zero(t, r.status, "%s\n%s", r.stdout, r.stderr)
	require.Len(t, report.Cells, 8)
	for _, f := range report.Cells {
		assert.Equal(t, sabotage.Turned, f.Outcome, "%s: %s", f.ID(), f.Reason)
		assert.Equal(t, lab.Pass, f.Baseline.Verdict, f.ID())
		require.Len(t, f.Trials, 1, "%s: the first that turns a cell is the last that is tried", f.ID())
		assert.Equal(t, sabotage.NoKubeProxy, f.Trials[0].Sabotage)
	}
	baseline, err := results.Read(filepath.Join(out, baselineDir))
	require.NoError(t, err)
	assert.Equal(t, results.Count{Pass: 8}, baseline.Count())
	broken, err := results.Read(filepath.Join(out, sabotage.NoKubeProxy))
	require.NoError(t, err)
	assert.Equal(t, sabotage.NoKubeProxy, broken.Sabotage)

	refused := kplab(t, "ledger", filepath.Join(out, sabotage.NoKubeProxy))
	assert.Equal(t, exitUsage, refused.status, "what a broken lab saw is no evidence")
	assert.Contains(t, refused.stderr, "sabotaged on purpose")
	ledger := kplab(t, "ledger", filepath.Join(out, baselineDir), "--format", "json")
	require.Zero(t, ledger.status, ledger.stderr)
	var book results.Book
	require.NoError(t, json.Unmarshal([]byte(ledger.stdout), &book))
	assert.Equal(t, "N1", book.Claims[0].ID)
	assert.Equal(t, results.Confirmed, book.Claims[0].Verdict)
	assert.DirExists(t, book.Claims[0].Evidence[0])
}

const service = `
-- web.yaml --
apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  selector:
    app: server
  ports:
  - {name: http, port: 80, targetPort: 8080}
`

// TestSelftestFindsDefects gives it scenarios that prove nothing.
func TestSelftestFindsDefects(t *testing.T) {
	needKubeProxy(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name+".txtar")
		require.NoError(t, os.WriteFile(path, []byte("# "+name+".\napply web.yaml\n"+text+service), 0o600))
		return path
	}
	vacuous := write("vacuous", "kube-proxy start\nprobe c1 tcp s1:8080\ncontrol reachable\nprobe c1 tcp s1:8081\nexpect refused\n")
	needless := write("needless", "probe c1 tcp s1:8080\nexpect reachable\n")
	wrong := write("wrong", "kube-proxy start\nprobe c1 tcp svc/web\nexpect refused\n")

	r, report := selftestOf(t, filepath.Join(dir, "out"), vacuous, needless, wrong, "--mode", "nftables", "--all")
	assert.Equal(t, results.ExitFail, r.status)
	got := map[string]*sabotage.Finding{}
	for _, f := range report.Cells {
		got[f.Scenario] = f
	}
	require.Len(t, got, 3)
	assert.Equal(t, sabotage.Survived, got["vacuous"].Outcome)
	assert.Equal(t, "passes without kube-proxy", got["vacuous"].Reason)
	assert.True(t, got["vacuous"].Turned(), "by the dead endpoints, which does not save it")
	assert.Equal(t, sabotage.Survived, got["needless"].Outcome)
	assert.Equal(t, sabotage.Unknown, got["wrong"].Outcome)
	assert.Empty(t, got["wrong"].Trials, "it does not pass as it is")
	assert.Contains(t, r.stdout, "DEFECT vacuous in nftables mode passes without kube-proxy")
	assert.Contains(t, r.stdout, "UNKNOWN wrong in nftables mode: does not pass without sabotage: ")
	for _, trial := range got["vacuous"].Trials {
		want := sabotage.Survived
		if trial.Sabotage == "dead-endpoints" {
			want = sabotage.Turned
		}
		assert.Equal(t, want, trial.Outcome, trial.Sabotage)
	}

	r, _ = selftestOf(t, filepath.Join(dir, "out2"), wrong, "--mode", "nftables")
	assert.Equal(t, results.ExitUnknown, r.status, "no defect was seen, and nothing else either")
}

// TestRepeat runs a scenario whose check is a coin toss: with eleven tosses it comes out alike once in a thousand runs.
func TestRepeat(t *testing.T) {
	needKubeProxy(t)
	file := filepath.Join(t.TempDir(), "toss.txtar")
	text := "# A toss.\napply web.yaml\nkube-proxy start\nprobe c1 tcp svc/web\ncontrol reachable\nspread c1 svc/web 9\nexpect s1>=5\n" + service
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	r := kplab(t, "run", file, "--kernel", "host", "--mode", "nftables", "--repeat", "11", "--json")
	assert.Equal(t, results.ExitFail, r.status, r.stderr)
	var run results.Run
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &run))
	require.Len(t, run.Cells, 1)
	assert.Len(t, run.Cells[0].Repeats, 11)
	assert.True(t, results.VerdictChanged(run.Cells[0]))
	assert.Contains(t, run.Cells[0].Reason, "the verdict changed between repeats")
}
