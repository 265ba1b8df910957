package main

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
	"kplab/lab/sabotage"
	"kplab/results"
	"kplab/results/schema"
	"kplab/results/schema/schematest"
)

// TestSelftestSchema holds the published schema of selftest.json against its Go type, and against one with every outcome.
func TestSelftestSchema(t *testing.T) {
	schematest.Fields(t, schema.Selftest, selftestSchema, reflect.TypeFor[selftestReport]())
	schematest.Enumerates(t, schema.Selftest, "/$defs/outcome", sabotage.Turned, sabotage.Survived, sabotage.NotApplicable, sabotage.Unknown)

	baseline := func(v lab.Verdict, reason string) *sabotage.Finding {
		return sabotage.NewFinding(lab.Result{Cell: lab.Cell{
			Scenario: "s", Parameters: map[string]string{"from": "ipvs"}, Mode: lab.NFTables, Kernel: lab.Kernel{Name: "host", Release: "6.18.5", Accelerator: "host"},
			KubeProxy: "1.37.2", KubeProxyPath: "./kube-proxy", Userland: lab.Userland{Name: "debian-12"}, Substrate: "netns",
		}, Verdict: v, Reason: reason, DurationMs: 1})
	}
	under := func(f *sabotage.Finding, v lab.Verdict, done *lab.Sabotage) *sabotage.Finding {
		f.Add(sabotage.Try(sabotage.NoKubeProxy, lab.Result{Verdict: v, Reason: "r", Sabotage: done}))
		return f
	}
	r := &selftestReport{
		Schema: selftestSchema, Started: time.Now().UTC(), Host: results.ThisHost(), Command: []string{"kplab", "selftest"}, Sabotages: []string{sabotage.NoKubeProxy},
		Cells: []*sabotage.Finding{
			under(baseline(lab.Pass, ""), lab.Fail, &lab.Sabotage{Bites: 1}),
			under(baseline(lab.Pass, ""), lab.Pass, &lab.Sabotage{}),
			under(baseline(lab.Pass, ""), lab.Error, nil), // a machine that died
			baseline(lab.Skip, "no IP_VS here"),
		},
		dir: t.TempDir(),
	}
	var outcomes []sabotage.Outcome
	for _, f := range r.Cells {
		outcomes = append(outcomes, f.Outcome)
	}
	require.Equal(t, []sabotage.Outcome{sabotage.Turned, sabotage.Survived, sabotage.Unknown, sabotage.NotApplicable}, outcomes)
	require.NoError(t, r.save())
	text, err := os.ReadFile(filepath.Join(r.dir, selftestFile))
	require.NoError(t, err)
	assert.NoError(t, schematest.Strict(t, schema.Selftest).Validate(schematest.Document(t, text)))
	schematest.Refuses(t, schema.Selftest, text, []schematest.Spoiled{
		{Name: "another version", At: "/schema", Value: 2},
		{Name: "no cells", At: "/cells"},
		{Name: "sabotages as string", At: "/sabotages", Value: sabotage.NoKubeProxy},
		{Name: "unknown outcome", At: "/cells/0/outcome", Value: "passed"},
		{Name: "unknown mode", At: "/cells/0/mode", Value: "userspace"},
		{Name: "unknown baseline", At: "/cells/0/baseline/verdict", Value: "passed"},
		{Name: "the number of a repeat", At: "/cells/0/repeat", Value: 1},
		{Name: "trial of no sabotage", At: "/cells/0/trials/0/sabotage"},
		{Name: "unknown outcome of a trial", At: "/cells/0/trials/0/outcome", Value: "survives"},
		{Name: "negative bites", At: "/cells/0/trials/0/bites", Value: -1},
		{Name: "time of no day", At: "/started", Value: "yesterday"},
	})
}
