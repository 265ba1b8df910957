package schema_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/bench"
	"kplab/lab"
	"kplab/results"
	"kplab/results/figures"
	"kplab/results/report"
	"kplab/results/schema"
	"kplab/results/schema/schematest"
)

// realRun is a run of three scenarios on the machine that kplab was written on.
const realRun = "../report/testdata/run"

func read(t *testing.T, elements ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elements...))
	require.NoError(t, err)
	return text
}

var catalogue = results.Catalogue{Claims: []lab.Claim{{ID: "N1", Source: "s", Text: "t"}, {ID: "B1", Source: "s", Text: "t", Untested: "u"}}}

// stored writes a run of one cell on a substrate, with everything that a cell can have, and returns its folder.
func stored(t *testing.T, substrate string, m lab.Machine) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	cell := lab.Cell{Scenario: "s", Parameters: map[string]string{"from": "ipvs"}, Mode: lab.NFTables, Kernel: lab.Kernel{Name: "host"}, KubeProxy: "1.37.2", Userland: lab.Userland{Name: "debian-12"}, Substrate: substrate}
	store, err := results.Create(dir, results.Options{
		Host: results.ThisHost(), Command: []string{"kplab", "run"}, Plan: []lab.Cell{cell}, Claims: catalogue.Claims, Shard: "1/2",
	})
	require.NoError(t, err)
	w := store.Machine([]lab.Cell{cell})
	one := 1
	holds := lab.Holdings{VirtualServers: &one, IPTables: map[string]lab.TableCount{"nat": {Chains: 1, Rules: 2}}}
	for _, e := range []lab.Event{
		{Type: lab.EventReady, Machine: &m},
		{Type: lab.EventStart, Cell: cell.ID()},
		{Type: lab.EventCheck, Cell: cell.ID(), Check: &lab.Check{Claim: "N1", Step: "s.txtar:1", What: "probe", Expected: "refused", Observed: "refused", OK: true}},
		{Type: lab.EventGap, Cell: cell.ID(), Gap: &lab.Gap{Step: "s.txtar:2", Name: "tells", Kind: lab.UDPOneWay, Outcomes: map[string]int{"lost": 1}, Endpoints: map[string]int{"s1": 3}}},
		{Type: lab.EventSurvive, Cell: cell.ID(), Survive: &lab.Survivors{Step: "s.txtar:3", Name: "kept", Connections: 2, Traffic: lab.Push, Outcomes: map[string]int{"alive": 2}}},
		{Type: lab.EventState, Cell: cell.ID(), State: &lab.State{
			Step: "s.txtar:4", Node: "n1", When: "after", Holds: holds, ConntrackEntries: &one, Sysctls: []lab.Sysctl{{Key: "net.ipv4.vs.conntrack", Value: "1", Other: "0"}},
			Foreign: []lab.Foreign{{Kind: "ipset", Name: "FOREIGN", Kept: true}}, Leftovers: &lab.Leftovers{Beyond: "n2", Holds: holds},
		}},
		{Type: lab.EventEvidence, Cell: cell.ID(), Path: "n1/nft.txt", Data: []byte("table\n")},
		{Type: lab.EventEnd, Cell: cell.ID(), Result: &lab.Result{Cell: cell, Verdict: lab.Pass}},
	} {
		require.NoError(t, w.Add(e))
	}
	run, err := store.Close("")
	require.NoError(t, err)
	require.Len(t, run.Cells[0].Gaps, 1)
	require.Len(t, run.Cells[0].Survivors, 1)
	require.Len(t, run.Cells[0].States, 1, "what a cell recorded is kept though its end does not repeat it")
	return dir
}

func merged(t *testing.T, dir string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "merged")
	_, err := results.Merge(out, []string{"kplab", "merge"}, results.RefuseOverlap, dir)
	require.NoError(t, err)
	return out
}

// measured writes figures of unit-test values, which are better by a factor, as kplab bench leaves them, and returns their folder.
func measured(t *testing.T, factor float64) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "bench")
	r, err := bench.NewRecorder(dir, bench.Book{
		Command: []string{"kplab", "bench"}, Host: results.ThisHost(), Settings: bench.DefaultSettings(), Left: []string{"ipvs mode is not measured on the host: no IP_VS"},
	})
	require.NoError(t, err)
	r.Begin("host", "debian-12")
	require.NoError(t, r.Add(lab.Event{Type: lab.EventReady, Machine: &lab.Machine{Release: "6.18.5", CPU: "A CPU", Cores: 2, Accelerator: "host", Features: map[string]bool{"nf_tables": true}, Tools: map[string]string{"nft": "1.0.6"}, Unit: 1, BootMs: 1}}))
	trial := lab.Trial{Mode: lab.NFTables, KubeProxy: "1.37.2", Services: 10, Endpoints: 2}
	for trial.Run = 1; trial.Run <= 6; trial.Run++ {
		require.NoError(t, r.Add(lab.Event{Type: lab.EventMeasurement, Trial: &trial, Measurement: &lab.Measurement{
			Name: "Sync/event=first/services=10/mode=nftables", Iters: 1, Values: []lab.Value{{Value: (10 + float64(trial.Run)/10) / factor, Unit: "ms/programmed"}, {Value: 3, Unit: "ms/delivered"}},
		}}))
		require.NoError(t, r.Add(lab.Event{Type: lab.EventTrialEnd, Trial: &trial}))
	}
	require.NoError(t, r.Add(lab.Event{Type: lab.EventMeasurement, Trial: &trial, Measurement: &lab.Measurement{Name: "Sync/x", Error: "it does not serve"}}))
	r.Begin("debian-12", "debian-12")
	r.Fail("the VM did not start")
	_, err = r.Close("interrupted")
	require.NoError(t, err)
	return dir
}

// begun is the folder of a benchmark that goes on.
func begun(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "begun")
	_, err := bench.NewRecorder(dir, bench.Book{Command: []string{"kplab", "bench"}, Host: results.ThisHost(), Settings: bench.QuickSettings()})
	require.NoError(t, err)
	return dir
}

// reported writes a report of folders and returns its report.json.
func reported(t *testing.T, dirs ...string) []byte {
	t.Helper()
	o := report.Options{Dir: filepath.Join(t.TempDir(), "report"), Catalogue: catalogue, Family: func(string) string { return "F" }}
	var sources []report.Source
	for _, dir := range dirs {
		s, err := report.Read(dir)
		require.NoError(t, err)
		sources = append(sources, s)
	}
	require.NoError(t, report.Write(o, sources...))
	return read(t, o.Dir, "report.json")
}

// compared is a comparison of the real run and figures with themselves after an upgrade that changed something of each kind.
func compared(t *testing.T) []byte {
	t.Helper()
	half := func(figuresIn string, change func(*results.Run)) results.Half {
		run, err := results.Read(realRun)
		require.NoError(t, err)
		set, err := figures.Read(figuresIn)
		require.NoError(t, err)
		change(run)
		return results.Half{Dir: "d", Run: run, Figures: set}
	}
	a := half(measured(t, 1), func(run *results.Run) { run.Cells[0].Scenario = "gone" })
	b := half(measured(t, 2), func(run *results.Run) {
		run.Cells[0].Scenario = "new"
		for i := range run.Cells {
			run.Cells[i].KubeProxy = "1.38.0"
		}
		cell := &run.Cells[1]
		cell.Verdict, cell.Reason = lab.Fail, "r"
		cell.Checks[0].OK, cell.Checks[0].Observed = false, "timeout"
		for i := range run.Claims {
			run.Claims[i].Verdict = results.Contradicted
		}
	})
	a.Run.Claims = slices.Clone(b.Run.Claims)
	for i := range a.Run.Claims {
		a.Run.Claims[i].Verdict = results.Confirmed
	}
	c, err := results.Compare(a, b, results.CompareOptions{})
	require.NoError(t, err)
	text, err := json.Marshal(c)
	require.NoError(t, err)
	return text
}

// ledger is what kplab ledger says of runs.
func ledger(t *testing.T, dirs ...string) []byte {
	t.Helper()
	var runs []*results.Run
	for _, dir := range dirs {
		run, err := results.Read(dir)
		require.NoError(t, err)
		runs = append(runs, run)
	}
	text, err := json.Marshal(results.NewBook(catalogue, runs...))
	require.NoError(t, err)
	return text
}

// TestFiles validates what this version writes, and a file of the first.
func TestFiles(t *testing.T) {
	vm := lab.Machine{Release: "6.18.5", Accelerator: "host"}
	run, cluster := stored(t, "netns", vm), stored(t, "cluster", lab.Machine{Release: "6.1.0", CPU: "node kind-worker"})
	figures := measured(t, 1)
	first := filepath.Join(t.TempDir(), "first")
	require.NoError(t, os.Mkdir(first, 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(first, "run.json"), read(t, "../testdata/schema-1.json"), 0o600))
	for _, tc := range []struct {
		name   string
		schema []byte
		text   []byte
		lists  string // that must not be empty, so that their elements are validated
		newer  bool   // it has a field of a later version
	}{
		{"run", schema.Run, read(t, run, "run.json"), "machines cells claims", false},
		{"run in a cluster", schema.Run, read(t, cluster, "run.json"), "machines cells claims", false},
		{"merged run", schema.Run, read(t, merged(t, run), "run.json"), "shards machines cells claims", false},
		{"real run", schema.Run, read(t, realRun, "run.json"), "machines cells claims", false},
		{"run of the first version", schema.Run, read(t, first, "run.json"), "machines cells claims", true},
		{"bench", schema.Bench, read(t, figures, bench.SettingsFile), "leftOut machines failures", false},
		{"bench that goes on", schema.Bench, read(t, begun(t), bench.SettingsFile), "", false},
		{"report", schema.Report, reported(t, realRun, run, cluster, figures), "runs differences claims figures plots notes", false},
		{"report of figures", schema.Report, reported(t, figures), "figures plots", false},
		{"report of the first version's run", schema.Report, reported(t, first), "runs claims", false},
		{"comparison", schema.Compare, compared(t), "subjects onlyA onlyB verdicts checks claims figures notes", false},
		{"ledger", schema.Ledger, ledger(t, realRun, run), "runs claims", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			doc := schematest.Document(t, tc.text)
			for _, list := range strings.Fields(tc.lists) {
				require.NotEmpty(t, doc[list], list)
			}
			assert.NoError(t, schematest.Compile(t, tc.schema).Validate(doc))
			if !tc.newer {
				assert.NoError(t, schematest.Strict(t, tc.schema).Validate(doc))
			}
		})
	}
}

// TestRefuses shows that the schemas tell what they describe from what they do not.
func TestRefuses(t *testing.T) {
	for _, tc := range []struct {
		name   string
		schema []byte
		text   []byte
		ways   []schematest.Spoiled
	}{
		{"run", schema.Run, read(t, realRun, "run.json"), []schematest.Spoiled{
			{Name: "another version", At: "/schema", Value: 2},
			{Name: "no cells", At: "/cells"},
			{Name: "unknown verdict", At: "/cells/1/verdict", Value: "passed"},
			{Name: "unknown mode", At: "/cells/1/mode", Value: "userspace"},
			{Name: "no observation", At: "/cells/1/checks/0/observed"},
			{Name: "time of no day", At: "/started", Value: "yesterday"},
			{Name: "negative time", At: "/durationMs", Value: -1},
			{Name: "a shard of no N", At: "/shard", Value: "2"},
			{Name: "claims as object", At: "/claims", Value: map[string]any{}},
		}},
		{"bench", schema.Bench, read(t, measured(t, 1), bench.SettingsFile), []schematest.Spoiled{
			{Name: "another version", At: "/schema", Value: 2},
			{Name: "no host", At: "/host"},
			{Name: "a host that is none", At: "/host", Value: map[string]any{"os": "Debian"}},
			{Name: "unknown benchmark", At: "/settings/benches", Value: []any{"latency"}},
			{Name: "no Services", At: "/settings/services", Value: []any{0}},
			{Name: "duration in words", At: "/settings/durationNs", Value: "10s"},
			{Name: "no failures", At: "/failures"},
			{Name: "failure without a reason", At: "/failures/0/reason"},
			{Name: "unknown accelerator", At: "/machines/0/machine/accelerator", Value: "qemu"},
			{Name: "a warm-up's calibration", At: "/machines/0/calibrations/0/run", Value: 0},
			{Name: "calibration without a unit", At: "/machines/0/calibrations/0/unit"},
			{Name: "time of no day", At: "/ended", Value: "today"},
		}},
		{"report", schema.Report, reported(t, realRun, measured(t, 1)), []schematest.Spoiled{
			{Name: "another version", At: "/schema", Value: 2},
			{Name: "unknown status", At: "/status", Value: "skip"},
			{Name: "a run of another version", At: "/runs/0/schema", Value: 2},
			{Name: "unknown verdict in a run", At: "/runs/0/cells/1/verdict", Value: "passed"},
			{Name: "unknown mode", At: "/differences/0/outcomes/0/mode", Value: "userspace"},
			{Name: "unknown substrate", At: "/differences/0/outcomes/0/substrate", Value: "clusters"},
			{Name: "observation as number", At: "/differences/0/outcomes/0/observed", Value: 1},
			{Name: "claim without an id", At: "/claims/0/id"},
			{Name: "claim without evidence", At: "/claims/0/evidence"},
			{Name: "unknown verdict of a claim", At: "/claims/0/verdict", Value: "true"},
			{Name: "figure without values", At: "/figures/0/values", Value: []any{}},
			{Name: "figure without a unit", At: "/figures/0/unit"},
			{Name: "plot without data", At: "/plots/0/csv"},
			{Name: "notes as string", At: "/notes", Value: "none"},
		}},
		{"compare", schema.Compare, compared(t), []schematest.Spoiled{
			{Name: "another version", At: "/schema", Value: 2},
			{Name: "one side", At: "/b"},
			{Name: "time of no day", At: "/a/started", Value: "yesterday"},
			{Name: "unknown verdict", At: "/verdicts/0/b", Value: "worse"},
			{Name: "verdict that may have regressed", At: "/verdicts/0/regression"},
			{Name: "unknown verdict of a claim", At: "/claims/0/a", Value: "true"},
			{Name: "check without a side", At: "/checks/0/okA"},
			{Name: "impossible p", At: "/figures/0/p", Value: 1.5},
			{Name: "figure of no runs", At: "/figures/0/nB", Value: 0},
			{Name: "negative count", At: "/regressions", Value: -1},
		}},
		{"ledger", schema.Ledger, ledger(t, realRun), []schematest.Spoiled{
			{Name: "another version", At: "/schema", Value: 2},
			{Name: "no claims", At: "/claims"},
			{Name: "unknown verdict", At: "/claims/0/verdict", Value: "true"},
			{Name: "a run of no folder", At: "/runs/0/dir"},
			{Name: "time of no day", At: "/runs/0/started", Value: "yesterday"},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { schematest.Refuses(t, tc.schema, tc.text, tc.ways) })
	}
}

// TestFields holds the schemas against the Go types; that of selftest.json is held against its in cmd/kplab.
func TestFields(t *testing.T) {
	for _, tc := range []struct {
		schema  []byte
		version int
		of      reflect.Type
	}{
		{schema.Run, results.Schema, reflect.TypeFor[results.Run]()},
		{schema.Bench, bench.Schema, reflect.TypeFor[bench.Book]()},
		{schema.Report, report.Schema, reflect.TypeFor[report.Document]()},
		{schema.Compare, results.ComparisonSchema, reflect.TypeFor[results.Comparison]()},
		{schema.Ledger, results.BookSchema, reflect.TypeFor[results.Book]()},
	} {
		t.Run(fmt.Sprint(tc.of), func(t *testing.T) { schematest.Fields(t, tc.schema, tc.version, tc.of) })
	}
}

// TestValues holds the values that schemas allow against those that Go knows.
func TestValues(t *testing.T) {
	schematest.Enumerates(t, schema.Run, "/$defs/mode", append(lab.Modes(), lab.NoKubeProxy)...)
	schematest.Enumerates(t, schema.Run, "/$defs/verdict", lab.Pass, lab.Fail, lab.Skip, lab.Error)
	schematest.Enumerates(t, schema.Run, "/$defs/claimVerdict", results.Confirmed, results.Contradicted, results.Untested)
	schematest.Enumerates(t, schema.Run, "/$defs/gap/properties/kind", lab.UDPRequests, lab.UDPOneWay)
	schematest.Enumerates(t, schema.Bench, "/$defs/settings/properties/benches/items", bench.Known()...)
	schematest.Enumerates(t, schema.Bench, "/$defs/settings/properties/modes/items", lab.Modes()...)
	schematest.Enumerates(t, schema.Report, "/properties/status", lab.Pass, lab.Fail, lab.Error, "")
}
