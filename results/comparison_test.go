package results

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
	"kplab/results/figures"
)

// upgraded is the sample after an upgrade of kube-proxy: a regression, a mended cell, a check that moved, and chance.
func upgraded() *Run {
	run := sample()
	run.ID, run.Dir = "20261201T015301.000Z", "results/20261201T015301Z"
	run.Started, run.Finished = run.Started.AddDate(0, 0, 1), run.Finished.AddDate(0, 0, 1)
	for i := range run.Cells {
		c := &run.Cells[i]
		c.KubeProxy = "1.38.0"
		c.Repro = c.Cell.Repro()
		c.Checks = append([]lab.Check(nil), c.Checks...)
	}
	// nodeport-secondary-address in ipvs mode: another endpoint answers, a line further down. That is no change.
	run.Cells[0].Checks[1].Observed, run.Cells[0].Checks[1].Step = "reachable by s1 from 10.0.0.1", "nodeport-secondary-address.txtar:14"
	// In nftables mode it answers now, and the cell fails.
	run.Cells[2].Checks[1].Observed, run.Cells[2].Checks[1].OK = "reachable by s1 from 192.0.2.9", false
	run.Cells[2].Verdict, run.Cells[2].Reason = lab.Fail, "nodeport-secondary-address.txtar:12: expected refused, observed reachable"
	// nodeport-localhost is mended in iptables mode.
	run.Cells[4].Verdict, run.Cells[4].Reason = lab.Pass, ""
	for j := range run.Cells[4].Checks {
		run.Cells[4].Checks[j].OK, run.Cells[4].Checks[j].Observed = true, "reachable"
	}
	run.Machines[0].Tools = map[string]string{"nft": "1.1.3", "iptables": "1.8.9"}
	run.Claims = Ledger(catalogue, run)
	return run
}

func TestCompareGoldens(t *testing.T) {
	c, err := Compare(Half{Dir: "results/a", Run: sample()}, Half{Dir: "results/b", Run: upgraded()}, CompareOptions{})
	require.NoError(t, err)
	assert.Equal(t, ExitFail, c.ExitStatus())
	golden(t, "compare.txt", func(w io.Writer) error { return c.Text(w, TextOptions{Width: 100}) })
	golden(t, "compare.md", c.Markdown)
}

func TestCompareAlike(t *testing.T) {
	c, err := Compare(Half{Run: sample()}, Half{Run: sample()}, CompareOptions{})
	require.NoError(t, err)
	assert.Empty(t, c.Subjects)
	assert.Empty(t, c.Verdicts)
	assert.Empty(t, c.Checks)
	assert.Empty(t, c.Claims)
	assert.Empty(t, c.OnlyA)
	assert.Equal(t, len(sample().Cells), c.Cells)
	assert.Equal(t, ExitOK, c.ExitStatus())
}

func TestCompareMatches(t *testing.T) {
	run := func(cells ...lab.Cell) *Run {
		r := &Run{Schema: Schema}
		for _, c := range cells {
			r.Cells = append(r.Cells, result(c, lab.Pass, 1, check("a.txtar:1", "", "p", "x", "x")))
		}
		return r
	}
	on := func(mode lab.Mode, kernel lab.Kernel, version string) lab.Cell {
		return cell("a", mode, kernel, version)
	}
	for _, tc := range []struct {
		name     string
		a, b     *Run
		cells    int
		subjects []string
		onlyA    int
		onlyB    int
		notes    string
	}{
		{"versions", run(on(lab.NFTables, onHost, "1.33.13")), run(on(lab.NFTables, onHost, "1.37.2")), 1, []string{"kube-proxy 1.33.13 → 1.37.2 (nftables / netns / host)"}, 0, 0, ""},
		{"kernels", run(on(lab.NFTables, onDebian11, "1.37.2")), run(on(lab.NFTables, onDebian12, "1.37.2")), 1, []string{"kernel debian-11 → debian-12 (nftables / netns)"}, 0, 0, ""},
		{"kernel and version", run(on(lab.NFTables, onDebian11, "1.33.13")), run(on(lab.NFTables, onDebian12, "1.37.2")), 1,
			[]string{"kernel debian-11 → debian-12 (nftables / netns)", "kube-proxy 1.33.13 → 1.37.2 (nftables / netns)"}, 0, 0, ""},
		{"modes", run(on(lab.IPTables, onHost, "1.37.2")), run(on(lab.NFTables, onHost, "1.37.2")), 1, []string{"mode iptables → nftables"}, 0, 0, ""},
		{"what both have", run(on(lab.NFTables, onHost, "1.33.13"), on(lab.NFTables, onHost, "1.37.2")), run(on(lab.NFTables, onHost, "1.37.2"), on(lab.NFTables, onDebian11, "1.37.2")), 1, nil, 1, 1, ""},
		{"per mode", run(on(lab.IPVS, onDebian12, "1.37.2"), on(lab.IPTables, onHost, "1.37.2")), run(on(lab.IPVS, onHost, "1.37.2"), on(lab.IPTables, onHost, "1.37.2")), 2,
			[]string{"kernel debian-12 → host (ipvs / netns)"}, 0, 0, ""},
		{"which belongs to which", run(on(lab.IPVS, onDebian12, "1.37.2"), on(lab.NFTables, onDebian11, "1.37.2"), on(lab.NFTables, onDebian12, "1.37.2")),
			run(on(lab.IPVS, onDebian12, "1.37.2"), on(lab.NFTables, onHost, "1.37.2")), 1, nil, 2, 1, "A has kernel debian-11, debian-12 and B has host"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := Compare(Half{Run: tc.a}, Half{Run: tc.b}, CompareOptions{})
			require.NoError(t, err)
			assert.Equal(t, tc.cells, c.Cells)
			var subjects []string
			for _, s := range c.Subjects {
				if !strings.HasPrefix(s.What, "accelerator") && !strings.HasPrefix(s.What, "kernel release") {
					subjects = append(subjects, s.String())
				}
			}
			assert.Equal(t, tc.subjects, subjects)
			assert.Len(t, c.OnlyA, tc.onlyA)
			assert.Len(t, c.OnlyB, tc.onlyB)
			assert.Contains(t, strings.Join(c.Notes, "; "), tc.notes)
		})
	}
	_, err := Compare(Half{Dir: "x", Run: run(on(lab.IPVS, onHost, "1.37.2"), on(lab.IPTables, onHost, "1.37.2"))}, Half{Dir: "y", Run: run(on(lab.NFTables, onHost, "1.37.2"))}, CompareOptions{})
	assert.ErrorIs(t, err, ErrNothingInCommon)
	assert.ErrorContains(t, err, "x and y have nothing in common to compare: A has mode ipvs, iptables and B has nftables")
}

// A cell that stopped at an error says nothing of its checks, and what passed before and errs now is a regression.
func TestCompareErrors(t *testing.T) {
	a, b := sample(), sample()
	b.Cells[1].Verdict, b.Cells[1].Reason, b.Cells[1].Checks = lab.Error, "kube-proxy died", nil
	c, err := Compare(Half{Run: a}, Half{Run: b}, CompareOptions{})
	require.NoError(t, err)
	require.Len(t, c.Verdicts, 1)
	assert.True(t, c.Verdicts[0].Regression)
	assert.Empty(t, c.Checks)
	back, err := Compare(Half{Run: b}, Half{Run: a}, CompareOptions{})
	require.NoError(t, err)
	assert.Equal(t, ExitOK, back.ExitStatus(), "an error that is mended is no regression")
}

// figuresOf writes and reads figures of unit-test values.
func figuresOf(t *testing.T, config string, lines ...string) *figures.Set {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, figures.BenchFile), []byte(config+"\n"+strings.Join(lines, "\n")+"\n"), 0o600))
	s, err := figures.Read(dir)
	require.NoError(t, err)
	return s
}

func bench(name, unit string, values ...float64) (lines []string) {
	for _, v := range values {
		lines = append(lines, fmt.Sprintf("Benchmark%s 1 %g %s", name, v, unit))
	}
	return lines
}

func TestCompareFigures(t *testing.T) {
	const setting = "kernel: 6.18.5\naccelerator: host\nkube-proxy: 1.37.2\n"
	all := func(lists ...[]string) (lines []string) {
		for _, l := range lists {
			lines = append(lines, l...)
		}
		return lines
	}
	a := figuresOf(t, setting, all(
		bench("Sync/services=100/mode=nftables", "ms/sync", 10, 10.1, 10.2, 10.3, 10.4),
		bench("Sync/services=1000/mode=nftables", "ms/sync", 100, 101, 102, 103, 104),
		bench("Sync/services=5000/mode=nftables", "ms/sync", 500, 510, 520, 530, 540),
		bench("Rate/mode=nftables", "connections/s", 900, 910, 920, 930, 940),
		bench("Few/mode=nftables", "ms/sync", 1, 1),
	)...)
	b := figuresOf(t, strings.Replace(setting, "1.37.2", "1.38.0", 1), all(
		bench("Sync/services=100/mode=nftables", "ms/sync", 10.2, 10.05, 10.3, 10.1, 10.4), // noise
		bench("Sync/services=1000/mode=nftables", "ms/sync", 130, 131, 132, 133, 134),      // worse
		bench("Sync/services=5000/mode=nftables", "ms/sync", 400, 410, 420, 430, 440),      // better
		bench("Rate/mode=nftables", "connections/s", 700, 710, 720, 730, 740),              // worse: a rate
		bench("Few/mode=nftables", "ms/sync", 9, 9),                                        // too few to tell
	)...)
	c, err := Compare(Half{Figures: a}, Half{Figures: b}, CompareOptions{MinChange: 0.05})
	require.NoError(t, err)
	assert.Equal(t, 5, c.FiguresCompared)
	require.Len(t, c.Figures, 3)
	assert.Equal(t, 2, c.Regressions)
	assert.Equal(t, ExitFail, c.ExitStatus())
	assert.True(t, c.Figures[0].Worse && c.Figures[1].Worse)
	assert.False(t, c.Figures[2].Worse)
	assert.Equal(t, "+29.4 %, p=0.008, n=5", c.Figures[0].Delta())
	assert.Equal(t, "kube-proxy 1.37.2 → 1.38.0", strings.Split(c.Subjects[0].String(), " (")[0])
	assert.Contains(t, c.Notes, "1 of 5 figures have fewer than 4 runs on a side: no change of them can be told from noise")

	c, err = Compare(Half{Figures: a}, Half{Figures: b}, CompareOptions{MinChange: 0.28})
	require.NoError(t, err)
	assert.Len(t, c.Figures, 1, "what changed by less does not count")

	vm := figuresOf(t, strings.Replace(setting, "host", "tcg", 1), bench("Sync/services=100/mode=nftables", "ms/sync", 100, 110, 120, 130)...)
	_, err = Compare(Half{Dir: "x", Figures: a}, Half{Dir: "y", Figures: vm}, CompareOptions{})
	assert.ErrorIs(t, err, ErrNothingInCommon)
	assert.ErrorContains(t, err, "the accelerator differs (host, tcg)")

	var text bytes.Buffer
	require.NoError(t, c.Text(&text, TextOptions{Width: 80}))
	assert.Contains(t, text.String(), "102 → 132  +29.4 %, p=0.008, n=5  worse")
}
