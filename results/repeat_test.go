package results

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
)

// repeated is a run of two cells, five times each: nftables changes its verdict, iptables only what a check saw.
func repeatedRun(t *testing.T, dir string) *Run {
	t.Helper()
	const what = "exchange pod"
	alive := check("s.txtar:9", "C2", what, "alive", "alive")
	either := func(observed string) lab.Check {
		return check("s.txtar:12", "", "probe n1 tcp x", "refused,timeout", observed)
	}
	spread := func(observed string) lab.Check { return check("s.txtar:14", "", "spread", "s1>=1", observed) }
	nft, ipt := cell("s", lab.NFTables, lab.Kernel{Name: "host"}, "1.37.2"), cell("s", lab.IPTables, lab.Kernel{Name: "host"}, "1.37.2")
	var all []lab.Cell
	for n := 1; n <= 5; n++ {
		for _, c := range []lab.Cell{nft, ipt} {
			c.Repeat = n
			all = append(all, c)
		}
	}
	s, err := Create(dir, Options{ID: "x", Plan: all, Claims: catalogue})
	require.NoError(t, err)
	m := s.Machine(all)
	add(t, m, lab.Event{Type: lab.EventReady, Machine: &lab.Machine{Release: "6.18.5", Accelerator: "host"}})
	for _, c := range all {
		checks := []lab.Check{alive, either("refused (rst)"), spread("s1 12, s2 28")}
		v := lab.Pass
		switch {
		case c.Mode == lab.NFTables && c.Repeat == 4:
			checks, v = []lab.Check{deviating(check("s.txtar:9", "C2", what, "alive", "reset"))}, lab.Error
		case c.Mode == lab.NFTables && c.Repeat == 3:
			checks[0], v = deviating(check("s.txtar:9", "C2", what, "alive", "reset")), lab.Fail
		case c.Mode == lab.IPTables && c.Repeat == 2:
			checks[1], checks[2] = either("timeout"), spread("s2 40")
		}
		evs := events(c, checks...)
		evs[len(evs)-1].Result.Verdict = v
		add(t, m, evs...)
	}
	run, err := s.Close("")
	require.NoError(t, err)
	return run
}

func TestRepeatsAreOneCell(t *testing.T) {
	dir := t.TempDir()
	run := repeatedRun(t, dir)
	require.Len(t, run.Cells, 2, "the matrix has each cell once")
	nft, ipt := run.Cells[0], run.Cells[1]
	require.Len(t, nft.Repeats, 5, "run.json has all of them")
	assert.Equal(t, lab.Fail, nft.Verdict, "the worst")
	assert.Equal(t, 3, nft.Repeat, "the first of the worst")
	assert.Contains(t, nft.Reason, "the verdict changed between repeats (3 pass, 1 fail (repeat 3), 1 error (repeat 4)); repeat 3: ")
	assert.Equal(t, []string{"cells/" + nft.ID() + "/n1/nft.txt"}, nft.Evidence)
	for i, r := range nft.Repeats {
		assert.Equal(t, i+1, r.Repeat)
		assert.NotEmpty(t, r.Evidence)
	}
	assert.True(t, VerdictChanged(nft))
	assert.Equal(t, lab.Pass, ipt.Verdict)
	assert.Equal(t, 1, ipt.Repeat)
	assert.False(t, VerdictChanged(ipt))
	assert.Equal(t, Count{Pass: 1, Fail: 1}, run.Count())
	assert.Equal(t, ExitFail, ExitStatus(run))

	read, err := Read(dir)
	require.NoError(t, err)
	assert.Equal(t, run, read)
	again, err := Recover(dir)
	require.NoError(t, err)
	assert.Equal(t, run, again)
}

func TestChangedVerdictFails(t *testing.T) {
	c := cell("s", lab.NFTables, onHost, "1.37.2")
	of := func(verdicts ...lab.Verdict) *Run {
		var all []lab.Result
		for i, v := range verdicts {
			c.Repeat = i + 1
			all = append(all, because(result(c, v, 1, check("s.txtar:1", "", "p", "x", "x")), "why"))
		}
		return &Run{Cells: joinRepeats(all), Finished: start}
	}
	interrupted := of(lab.Pass, lab.Pass)
	again := interrupted.Cells[0]
	again.Repeat, again.Verdict, again.Reason, again.Repeats = 3, lab.Error, "not started: interrupted by signal", nil
	first := interrupted.Cells[0]
	first.Repeats = nil
	interrupted.Cells = joinRepeats([]lab.Result{first, again})
	for _, tt := range []struct {
		run     *Run
		verdict lab.Verdict
		exit    int
	}{
		{of(lab.Pass, lab.Pass), lab.Pass, ExitOK},
		{of(lab.Skip, lab.Skip), lab.Skip, ExitOK},
		{of(lab.Error, lab.Error), lab.Error, ExitUnknown},
		{of(lab.Pass, lab.Error), lab.Error, ExitFail},
		{of(lab.Pass, lab.Skip), lab.Skip, ExitFail},
		{of(lab.Error, lab.Pass, lab.Fail), lab.Fail, ExitFail},
		{interrupted, lab.Error, ExitUnknown},
	} {
		require.Len(t, tt.run.Cells, 1)
		assert.Equal(t, tt.verdict, tt.run.Cells[0].Verdict)
		assert.Equal(t, tt.exit, ExitStatus(tt.run))
	}
}

func TestChanges(t *testing.T) {
	all := Changes(repeatedRun(t, t.TempDir()))
	require.Len(t, all, 2)
	assert.Equal(t, []RepeatedOutcome{{"pass", []int{1, 2, 5}}, {"fail", []int{3}}, {"error", []int{4}}}, all[0].Verdicts)
	require.Len(t, all[0].Checks, 1, "an error cell does not count where it did not get to")
	assert.Equal(t, CheckChange{"s.txtar:9", "exchange pod", []RepeatedOutcome{{"alive", []int{1, 2, 5}}, {"reset ✗", []int{3, 4}}}}, all[0].Checks[0])
	assert.Len(t, all[1].Verdicts, 1)
	require.Len(t, all[1].Checks, 1, "how the endpoints were spread is a detail")
	assert.Equal(t, []RepeatedOutcome{{"refused", []int{1, 3, 4, 5}}, {"timeout", []int{2}}}, all[1].Checks[0].Outcomes)
}

func TestChangedChecksOfTheSameLine(t *testing.T) {
	twice := func(n int, second string) lab.Repeat {
		return lab.Repeat{Repeat: n, Verdict: lab.Pass, Checks: []lab.Check{check("s.txtar:1", "", "p", "x", "reachable"), check("s.txtar:1", "", "p", "x", second)}}
	}
	changes := changedChecks([]lab.Repeat{twice(1, "refused"), twice(2, "refused")})
	assert.Empty(t, changes, "the second look at the same line is compared with the second look")
	short := lab.Repeat{Repeat: 3, Verdict: lab.Pass, Checks: []lab.Check{check("s.txtar:1", "", "p", "x", "reachable")}}
	changes = changedChecks([]lab.Repeat{twice(1, "refused"), twice(2, "refused"), short})
	require.Len(t, changes, 1)
	assert.Equal(t, []RepeatedOutcome{{"refused", []int{1, 2}}, {"was not made", []int{3}}}, changes[0].Outcomes)
}

func TestRepeatsRendered(t *testing.T) {
	run := repeatedRun(t, t.TempDir())
	golden(t, "repeats.txt", func(w io.Writer) error { return RepeatsText(w, run, TextOptions{Width: 80}) })
	var md bytes.Buffer
	require.NoError(t, Markdown(&md, run))
	assert.Contains(t, md.String(), "## Repeats\n\n5 repeats of 2 cells: the verdict of 1 changed, in 1 more a check came out otherwise.\n")

	var none bytes.Buffer
	require.NoError(t, RepeatsText(&none, sample(), TextOptions{}))
	assert.Empty(t, none.String(), "a run that repeats nothing has nothing to say")
	md.Reset()
	require.NoError(t, Markdown(&md, sample()))
	assert.NotContains(t, md.String(), "Repeats")
}

// What a sabotaged run saw is no evidence.
func TestSabotagedRunHasNoLedger(t *testing.T) {
	dir := t.TempDir()
	s, err := Create(dir, Options{Plan: plan(), Claims: catalogue, Sabotage: "no-kube-proxy"})
	require.NoError(t, err)
	m := s.Machine(plan())
	for _, c := range plan() {
		add(t, m, events(c, check("a.txtar:1", "N1", "probe", "reachable", "reachable"))...)
	}
	run, err := s.Close("")
	require.NoError(t, err)
	assert.Empty(t, run.Claims)
	read, err := Read(dir)
	require.NoError(t, err)
	assert.Equal(t, "no-kube-proxy", read.Sabotage)
	again, err := Recover(dir)
	require.NoError(t, err)
	assert.Empty(t, again.Claims)
	var md bytes.Buffer
	require.NoError(t, Markdown(&md, run))
	assert.Contains(t, md.String(), "**Sabotaged on purpose (no-kube-proxy)")
}
