package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"kplab/lab"
	"kplab/results"
	"kplab/results/figures"
)

var catalogue = results.Catalogue{
	Claims: []lab.Claim{
		{ID: "N5", Source: "kubernetes.io", Text: "A NodePort answers on 127.0.0.1 in iptables mode only."},
		{ID: "C2", Source: "kubernetes/kubernetes#74839", Text: "Segments beyond the window reset connections in nftables mode only.", Reality: "In iptables mode too."},
		{ID: "B1", Source: "a blog", Text: "nftables mode is faster."},
	},
	Scenarios: map[string][]string{"N5": {"nodeport-localhost"}, "C2": {"conntrack-invalid-reset"}},
}

func options(t *testing.T) Options {
	return Options{Dir: filepath.Join(t.TempDir(), "report"), Catalogue: catalogue, Family: func(id string) string {
		return map[string]string{"N": "NodePorts", "C": "conntrack"}[id[:1]]
	}}
}

// realRun is a run of three scenarios on the machine that kplab was written on.
func realRun(t *testing.T) Source {
	t.Helper()
	s, err := Read("testdata/run")
	require.NoError(t, err)
	return s
}

const hostile = "\x1b[2J<script>alert(1)</script>\"'&|`</style>]]>\n-- next"

// every is a run with every verdict, of unit-test values.
func every(t *testing.T) Source {
	t.Helper()
	cell := func(scenario string, mode lab.Mode, v lab.Verdict, reason string, checks ...lab.Check) lab.Result {
		c := lab.Cell{Scenario: scenario, Mode: mode, Kernel: lab.Kernel{Name: "host", Release: "6.18.5", Accelerator: "host"}, KubeProxy: "1.37.2", Userland: lab.Userland{Name: "debian-12"}, Substrate: "netns"}
		return lab.Result{Cell: c, Verdict: v, Reason: reason, DurationMs: 1500, Checks: checks, Evidence: []string{"cells/" + c.ID() + "/n1/nft.txt"}, Repro: c.Repro()}
	}
	check := func(observed string, ok bool) lab.Check {
		return lab.Check{Claim: "N5", Step: "a.txtar:3", What: "probe n1 tcp localhost:nodeport/web", Expected: "refused", Observed: observed, OK: ok}
	}
	run := &results.Run{
		Schema: results.Schema, ID: "20261201T000000.000Z", Started: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), Finished: time.Date(2026, 12, 1, 0, 1, 0, 0, time.UTC), DurationMs: 60_000,
		Host: results.Host{OS: "Debian", Kernel: "6.18.5", CPU: "Some CPU", Cores: 2, MemoryBytes: 8 << 30, KPLab: "v1", User: "root"}, Command: []string{"kplab", "run"},
		Machines: []results.Machine{}, Claims: []results.ClaimResult{},
		Cells: []lab.Result{
			cell("a", lab.IPVS, lab.Skip, "no IP_VS here"),
			cell("a", lab.IPTables, lab.Fail, "a.txtar:3: expected refused, observed reachable", check("reachable "+hostile, false)),
			cell("a", lab.NFTables, lab.Pass, "", check("refused", true)),
			cell("b-with-a-very-long-name-that-does-not-want-to-break-anywhere", lab.NFTables, lab.Error, hostile),
		},
	}
	dir := filepath.Join(t.TempDir(), "run")
	for _, c := range run.Cells[:3] {
		name := filepath.Join(dir, c.Evidence[0])
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o777))
		require.NoError(t, os.WriteFile(name, []byte("table ip x\n"), 0o600))
	}
	text, err := json.Marshal(run)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run.json"), text, 0o600))
	s, err := Read(dir)
	require.NoError(t, err)
	return s
}

// measured writes figures of unit-test values in the shape in which kplab bench leaves them: two modes, three sizes, five runs.
func measuredSource(t *testing.T, accelerators ...string) Source {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	var bench, samples, gaps strings.Builder
	samples.WriteString("bench,mode,run,index,value,unit\n")
	gaps.WriteString("pair,services,run,client,at_ms,outcome\n")
	modes := map[string]float64{"iptables": 0.8, "nftables": 0.1}
	for _, accelerator := range accelerators {
		fmt.Fprintf(&bench, "kernel: 6.18.5-%s\naccelerator: %s\ncpu: Some CPU\nkube-proxy: 1.37.2\nnft: 1.0.6\niptables: 1.8.9\n\n", accelerator, accelerator)
		for run := range 5 {
			for _, mode := range []string{"iptables", "nftables"} {
				for _, services := range []int{100, 1000, 5000} {
					ms := modes[mode] * float64(services) * (0.9 + 0.2*random.Float64())
					fmt.Fprintf(&bench, "BenchmarkSync/event=first/services=%d/endpoints=2/mode=%s 1 %.3f ms/sync %.3f ms/programmed %d rules 0 execs\n", services, mode, ms, 1.1*ms, 4*services)
					for _, path := range []string{"clusterip/position=last", "direct", "floor"} {
						name := fmt.Sprintf("Connect/path=%s/services=%d/mode=%s", path, services, mode)
						fmt.Fprintf(&bench, "Benchmark%s 100 %.2f µs/connect\n", name, 20+5*random.Float64())
						for i := range 50 {
							fmt.Fprintf(&samples, "%s,%s,%d,%d,%.2f,µs/connect\n", name, mode, run, i, 20+30*random.Float64())
						}
					}
				}
			}
		}
	}
	for run := range 2 {
		for _, client := range []string{"c1", "ext"} {
			for ms := -50; ms < 500; ms += 10 {
				outcome := "reachable (s1)"
				if ms > 100 && ms < 200 {
					outcome = "refused (rst)"
				}
				fmt.Fprintf(&gaps, "ipvs->nftables,1000,%d,%s,%d,%s\n", run, client, ms, outcome)
			}
		}
	}
	for name, text := range map[string]string{figures.BenchFile: bench.String(), figures.SamplesFile: samples.String(), figures.GapsFile: gaps.String()} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	s, err := Read(dir)
	require.NoError(t, err)
	return s
}

func written(t *testing.T, o Options, sources ...Source) string {
	t.Helper()
	require.NoError(t, Write(o, sources...))
	return o.Dir
}

func read(t *testing.T, elements ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elements...))
	require.NoError(t, err)
	return string(text)
}

func TestWrite(t *testing.T) {
	dir := written(t, options(t), realRun(t), every(t), measuredSource(t, "host"))
	var d Document
	require.NoError(t, json.Unmarshal([]byte(read(t, dir, jsonFile)), &d))
	assert.Equal(t, lab.Fail, d.Status)
	assert.Len(t, d.Runs, 2)
	assert.NotEmpty(t, d.Differences)
	assert.Len(t, d.Figures, 3*2*4+3*2*3, "sizes, modes, units and paths")
	for _, p := range d.Plots {
		require.NotEmpty(t, p.SVG, p.Title)
		assert.FileExists(t, filepath.Join(dir, p.SVG))
		rows, err := csv.NewReader(strings.NewReader(read(t, dir, p.CSV))).ReadAll()
		require.NoError(t, err)
		assert.Greater(t, len(rows), 1, p.CSV)
	}
	kinds := map[string]int{}
	for _, p := range d.Plots {
		kinds[strings.Fields(p.Title)[0]]++
	}
	assert.Equal(t, map[string]int{"Sync": 4, "Connect": 2 + 2*3, "Gap": 1}, kinds, "no plot of the floor alone; a distribution for each size")

	d1 := xml.NewDecoder(strings.NewReader(read(t, dir, junitFile)))
	for {
		if _, err := d1.Token(); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
	}
	cells, err := csv.NewReader(strings.NewReader(read(t, dir, cellsFile))).ReadAll()
	require.NoError(t, err)
	assert.Len(t, cells, 1+9+4)
	rows, err := csv.NewReader(strings.NewReader(read(t, dir, figuresFile))).ReadAll()
	require.NoError(t, err)
	assert.Equal(t, []string{"dir", "bench", "run", "value", "unit", "accelerator", "cpu", "iptables", "kernel", "kube-proxy", "nft"}, rows[0])
	assert.Len(t, rows, 1+5*2*3*(4+3))

	again := options(t)
	again.Dir = dir
	require.NoError(t, Write(again, realRun(t)), "a report is replaced")
	assert.NoFileExists(t, filepath.Join(dir, figuresFile))
	assert.NoDirExists(t, filepath.Join(dir, plotsDir))
}

// The page must stand alone: it asks no network for anything, and what it links to is there.
func TestPageStandsAlone(t *testing.T) {
	for _, evidence := range []bool{false, true} {
		o := options(t)
		o.Evidence = evidence
		dir := written(t, o, every(t), measuredSource(t, "host"))
		page := read(t, dir, pageFile)
		assert.NotContains(t, page, "<script>alert")
		root, err := html.Parse(strings.NewReader(page))
		require.NoError(t, err)
		ids := map[string]bool{}
		var links []string
		evidenceLinks := 0
		for n := range root.Descendants() {
			for _, a := range n.Attr {
				switch a.Key {
				case "id":
					assert.False(t, ids[a.Val], "id %s is there twice", a.Val)
					ids[a.Val] = true
				case "href", "src":
					links = append(links, a.Val)
				}
			}
			if n.Data == "svg" {
				assert.NotEmpty(t, n.Attr)
			}
		}
		for _, l := range links {
			switch {
			case strings.HasPrefix(l, "#"):
				assert.True(t, ids[l[1:]], "%s leads nowhere", l)
			case strings.HasPrefix(l, "data:"):
			default:
				assert.NotRegexp(t, "^[a-z]+:|^//", l)
				_, err := os.Stat(filepath.Join(dir, l))
				assert.NoError(t, err)
				if strings.HasSuffix(l, "nft.txt") {
					evidenceLinks++
				}
			}
		}
		assert.Equal(t, 3, evidenceLinks, "of four files one is not there")
		assert.NotRegexp(t, regexp.MustCompile(`(?i)(src|href)=["']?https?:|@import|url\(`), page)
		_, err = os.Stat(filepath.Join(dir, evidenceDir))
		assert.Equal(t, evidence, err == nil)
	}
}

// What is absent is absent.
func TestPageOfPart(t *testing.T) {
	page := read(t, written(t, options(t), realRun(t)), pageFile)
	assert.NotContains(t, page, `id="figures"`)
	assert.NotContains(t, page, "<figure")
	assert.Contains(t, page, `id="matrix"`)
	assert.NotContains(t, page, `id="substrates"`)

	dir := written(t, options(t), measuredSource(t, "host"))
	page = read(t, dir, pageFile)
	assert.NotContains(t, page, `id="matrix"`)
	assert.NotContains(t, page, `id="ledger"`)
	assert.Contains(t, page, "<figure")
	assert.NoFileExists(t, filepath.Join(dir, junitFile))
}

// Figures of different kernels, accelerators or machines never share an axis, and samples that do not say where they are from have none.
func TestSettingsApart(t *testing.T) {
	o := options(t)
	d, err := collect(o, []Source{measuredSource(t, "host", "tcg")})
	require.NoError(t, err)
	kinds := map[string]int{}
	for _, p := range d.plots {
		kinds[p.Kind]++
		for _, s := range p.Head[1:] {
			if p.Kind == mainPlot {
				assert.NotContains(t, s, "tcg")
			}
		}
	}
	assert.Equal(t, 2*(2+2), kinds[mainPlot], "each of the settings has its own")
	assert.Zero(t, kinds[distributionPlot])
	assert.Len(t, d.notes, 1)
	assert.Contains(t, d.notes[0], "does not say of which its samples are")
}

// Versions of kube-proxy share an axis, with a series each; folders of the same are told apart too.
func TestSeries(t *testing.T) {
	set := func(version string) Source {
		dir := filepath.Join(t.TempDir(), "of-"+version)
		require.NoError(t, os.MkdirAll(dir, 0o777))
		text := fmt.Sprintf("kernel: k\nkube-proxy: %s\nBenchmarkSync/services=10/mode=nftables 1 5 ms/sync\nBenchmarkSync/services=100/mode=nftables 1 50 ms/sync\n", version)
		require.NoError(t, os.WriteFile(filepath.Join(dir, figures.BenchFile), []byte(text), 0o600))
		s, err := Read(dir)
		require.NoError(t, err)
		return s
	}
	head := func(sources ...Source) []string {
		d, err := collect(options(t), sources)
		require.NoError(t, err)
		require.Len(t, d.plots, 1)
		return d.plots[0].Head
	}
	assert.Equal(t, []string{"Services", "nftables"}, head(set("1.37.2")))
	assert.Equal(t, []string{"Services", "nftables 1.33.13", "nftables 1.37.2"}, head(set("1.33.13"), set("1.37.2")))
	assert.Equal(t, []string{"Services", "nftables (of-1.37.2)", "nftables (of-1.37.2 #2)"}, head(set("1.37.2"), set("1.37.2")))
}

func TestGap(t *testing.T) {
	gap := func(outcomes string) float64 {
		w := watch{}
		for i, o := range outcomes {
			w.gaps = append(w.gaps, figures.Gap{AtMs: float64(10 * i), Outcome: map[rune]string{'+': "ok", '-': "timeout"}[o]})
		}
		ms, _, _ := w.longest()
		return ms
	}
	for outcomes, want := range map[string]float64{"++++": 0, "+--+": 30, "+-++---+": 40, "--+": 20, "+--": 20, "---": 20, "+": 0} {
		assert.InDelta(t, want, gap(outcomes), 1e-9, outcomes)
	}
}

// A connection that was reset is lost: how long it was watched after that is no gap.
func TestLostClient(t *testing.T) {
	gaps := func(client, run string, outcomes ...string) (w watch) {
		w = watch{run: run, client: client}
		for i, o := range outcomes {
			w.gaps = append(w.gaps, figures.Gap{Client: client, Run: run, AtMs: float64(10 * i), Outcome: o})
		}
		return w
	}
	assert.Equal(t, "clusterip 20 ms, established 0 ms not answered again in 1 of 2", clientsText([]watch{
		gaps("clusterip", "1", "ok", "timeout", "ok"), gaps("established", "1", "ok", "ok", "reset"), gaps("established", "2", "ok", "ok"),
	}))
}

func TestSentence(t *testing.T) {
	sentence := func(sources ...Source) string {
		d, err := collect(options(t), sources)
		require.NoError(t, err)
		return d.sentence()
	}
	assert.Equal(t, "All 6 cells that ran to the end are as the scenarios assert. 3 cells were skipped, each with its reason.", sentence(realRun(t)))
	assert.Equal(t, "1 of 2 cells that ran to the end deviates from what the scenarios assert: a (iptables). Of 1 cell the lab could not tell: "+
		"b-with-a-very-long-name-that-does-not-want-to-break-anywhere (nftables). 1 cell was skipped, each with its reason.", sentence(every(t)))
	assert.Equal(t, "Figures of 2 benchmarks; no cell was run.", sentence(measuredSource(t, "host")))
}

// A comment on a pull request has a limit, and says so where it was cut.
func TestMarkdown(t *testing.T) {
	o := options(t)
	o.URL = "https://example.org/kplab/"
	md := read(t, written(t, o, realRun(t), measuredSource(t, "host")), markdownFile)
	assert.Less(t, len(md), maxMarkdown)
	assert.Contains(t, md, "[https://example.org/kplab/](https://example.org/kplab/)")
	assert.Contains(t, md, "### Sync first, endpoints 2, ms/sync")
	assert.NotContains(t, md, "Cut here")

	big := every(t)
	for i := range 400 {
		c := big.Run.Cells[1]
		c.Scenario = fmt.Sprintf("scenario-%d", i)
		big.Run.Cells = append(big.Run.Cells, c)
	}
	md = read(t, written(t, options(t), big, realRun(t)), markdownFile)
	assert.LessOrEqual(t, len(md), maxMarkdown)
	assert.Contains(t, md, "lines more in [the whole report](index.html).**")
	assert.Contains(t, md, "# Ledger", "what is long does not push out what comes after it")
	assert.NotContains(t, md, "\x1b")
}

func TestRefuses(t *testing.T) {
	o := options(t)
	o.Dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(o.Dir, "thesis.tex"), nil, 0o600))
	assert.ErrorIs(t, Write(o, realRun(t)), ErrOccupied)
	_, err := Read(t.TempDir())
	assert.ErrorContains(t, err, "holds no run")
	assert.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Read(filepath.Join(t.TempDir(), "none"))
	assert.Error(t, err)
}

func TestComparison(t *testing.T) {
	a, b := every(t), every(t)
	b.Run.Cells[2].Verdict, b.Run.Cells[2].Reason = lab.Fail, hostile
	c, err := results.Compare(results.Half{Dir: "a", Run: a.Run}, results.Half{Dir: "b", Run: b.Run}, results.CompareOptions{})
	require.NoError(t, err)
	var page bytes.Buffer
	require.NoError(t, Comparison(&page, c))
	assert.Contains(t, page.String(), "1 regression")
	assert.NotContains(t, page.String(), "<script>")
	_, err = html.Parse(&page)
	require.NoError(t, err)
}

func TestLedger(t *testing.T) {
	run := every(t).Run
	run.Claims = []results.ClaimResult{{Claim: lab.Claim{ID: "X1", Source: "an issue", Text: hostile}}}
	var page bytes.Buffer
	require.NoError(t, Ledger(&page, results.NewBook(catalogue, run), options(t).Family))
	text := page.String()
	for _, want := range []string{`id="claim-N5"`, `id="claim-B1"`, "NodePorts", "0 claims confirmed, 1 contradicted, 3 untested", "a.iptables.host.1.37.2.debian-12.netns"} {
		assert.Contains(t, strings.ReplaceAll(text, "<wbr>", ""), want)
	}
	assert.NotContains(t, text, "<script>")
	assert.NotRegexp(t, regexp.MustCompile(`(?i)(src|href)=["']?https?:|@import|url\(`), text)
	_, err := html.Parse(&page)
	require.NoError(t, err)
}
