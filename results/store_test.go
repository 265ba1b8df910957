package results

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
)

// watch is a clock that moves by a step each time it is read.
type watch struct {
	mu   sync.Mutex
	t    time.Time
	step time.Duration
}

func (w *watch) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.t = w.t.Add(w.step)
	return w.t
}

func plan() []lab.Cell {
	host, vm := lab.Kernel{Name: "host"}, lab.Kernel{Name: "debian-12"}
	return []lab.Cell{
		cell("clusterip-basics", lab.IPVS, vm, "1.37.2"),
		cell("clusterip-basics", lab.NFTables, host, "1.37.2"),
		cell("nodeport-localhost", lab.IPVS, vm, "1.37.2"),
		cell("nodeport-localhost", lab.NFTables, host, "1.37.2"),
	}
}

func onKernel(cells []lab.Cell, name string) []lab.Cell {
	return slices.DeleteFunc(slices.Clone(cells), func(c lab.Cell) bool { return c.Kernel.Name != name })
}

// events is what a machine sends for one cell.
func events(c lab.Cell, checks ...lab.Check) []lab.Event {
	out := []lab.Event{{Type: lab.EventStart, Cell: c.ID()}}
	for _, ck := range checks {
		out = append(out, lab.Event{Type: lab.EventCheck, Cell: c.ID(), Check: &ck})
	}
	out = append(out, lab.Event{Type: lab.EventEvidence, Cell: c.ID(), Path: "n1/nft.txt", Data: []byte("table ip kube-proxy")})
	return append(out, lab.Event{Type: lab.EventEnd, Cell: c.ID(), Result: &lab.Result{Cell: c, Verdict: lab.Pass, DurationMs: 900, Checks: checks}})
}

func add(t *testing.T, m *Stream, events ...lab.Event) {
	t.Helper()
	for _, ev := range events {
		require.NoError(t, m.Add(ev))
	}
}

func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "run")
	cells := plan()
	var seen []lab.Event
	s, err := Create(dir, Options{
		ID: "x", Command: []string{"kplab", "run"}, Host: ThisHost(), Plan: cells, Claims: catalogue,
		Notify: func(ev lab.Event) { seen = append(seen, ev) },
	})
	require.NoError(t, err)
	before, err := Read(dir)
	require.NoError(t, err, "a run that has just begun can be read")
	assert.True(t, before.Finished.IsZero())
	assert.Equal(t, ExitUnknown, ExitStatus(before))

	host, vm := s.Machine(onKernel(cells, "host")), s.Machine(onKernel(cells, "debian-12"))
	add(t, vm, lab.Event{Type: lab.EventReady, Machine: &lab.Machine{Release: "6.1.0", Accelerator: "tcg", BootMs: 5000}})
	add(t, host, lab.Event{Type: lab.EventReady, Machine: &lab.Machine{Release: "6.18.5", Accelerator: "host"}})
	add(t, host, events(cells[3], check("a.txtar:3", "N5", "probe", "refused", "refused"))...)
	add(t, vm, events(cells[0])...)
	add(t, vm, lab.Event{Type: lab.EventStart, Cell: cells[2].ID()},
		lab.Event{Type: lab.EventCheck, Cell: cells[2].ID(), Check: new(check("a.txtar:1", "N1", "probe", "reachable", "reachable"))},
		lab.Event{Type: lab.EventEvidence, Path: "console.log", Data: []byte("Kernel panic")})
	require.NoError(t, vm.Fail("the guest panicked"))

	run, err := s.Close("interrupted")
	require.NoError(t, err)
	var got []string
	for _, c := range run.Cells {
		got = append(got, fmt.Sprintf("%s %s %s %s: %s", c.Scenario, c.Kernel.Name, c.Kernel.Release, c.Verdict, c.Reason))
	}
	assert.Equal(t, []string{ // in the plan's order, not as they ended
		"clusterip-basics debian-12 6.1.0 pass: ",
		"clusterip-basics host 6.18.5 error: not started: interrupted",
		"nodeport-localhost debian-12 6.1.0 error: cut off: the guest panicked",
		"nodeport-localhost host 6.18.5 pass: ",
	}, got)
	assert.Len(t, run.Cells[2].Checks, 1, "what a dead cell had seen is kept")
	assert.Equal(t, []string{"cells/" + cells[3].ID() + "/n1/nft.txt"}, run.Cells[3].Evidence)
	assert.Equal(t, cells[1].Repro(), run.Cells[1].Repro)
	assert.Equal(t, ExitUnknown, ExitStatus(run))
	assert.Equal(t, Confirmed, run.Claims[1].Verdict)
	assert.Equal(t, Untested, run.Claims[0].Verdict, "an error cell counts for nothing")
	require.Len(t, run.Machines, 2)
	assert.EqualValues(t, 5000, run.Machines[0].BootMs)
	ends := 0
	for _, ev := range seen {
		if ev.Type == lab.EventEnd {
			ends++
		}
	}
	assert.Equal(t, len(cells), ends, "those who follow a run see every cell end")

	for _, name := range []string{runFile, eventsFile, matrixFile, ledgerFile, junitFile, run.Cells[3].Evidence[0], "machines/debian-12.debian-12.netns/console.log"} {
		assert.FileExists(t, filepath.Join(dir, name))
	}
	for _, path := range []string{dir, filepath.Join(dir, runFile)} {
		read, err := Read(path)
		require.NoError(t, err)
		assert.Equal(t, run, read)
	}
	again, err := s.Close("again")
	require.NoError(t, err)
	assert.Equal(t, run, again)
	assert.ErrorIs(t, host.Add(lab.Event{Type: lab.EventLog}), ErrClosed)
}

func TestCreateRefusesAnotherRun(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("mine"), 0o666))
	s, err := Create(dir, Options{ID: "first", Plan: plan()})
	require.NoError(t, err, "a folder with other files is fine")
	_, err = Create(dir, Options{Overwrite: true})
	assert.ErrorIs(t, err, ErrInUse)
	m := s.Machine(plan())
	add(t, m, events(plan()[0])...)
	_, err = s.Close("")
	require.NoError(t, err)

	_, err = Create(dir, Options{ID: "second"})
	require.ErrorIs(t, err, ErrExists)
	assert.Contains(t, err.Error(), dir)

	s, err = Create(dir, Options{ID: "second", Overwrite: true})
	require.NoError(t, err)
	run, err := s.Close("")
	require.NoError(t, err)
	assert.Equal(t, "second", run.ID)
	assert.NoDirExists(t, filepath.Join(dir, cellsDir))
	assert.FileExists(t, filepath.Join(dir, "notes.txt"))

	require.NoError(t, os.WriteFile(filepath.Join(dir, runFile), []byte(`{"name": "somebody else's"}`), 0o666))
	_, err = Create(dir, Options{Overwrite: true})
	assert.ErrorContains(t, err, "not kplab's")
}

func TestCreateWhereItCannot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o666))
	_, err := Create(filepath.Join(file, "run"), Options{})
	assert.ErrorContains(t, err, "choose another folder")
	_, err = Create(file, Options{})
	assert.ErrorContains(t, err, "choose another folder")
}

func TestAddConcurrently(t *testing.T) {
	dir := t.TempDir()
	const machines, each = 4, 25
	s, err := Create(dir, Options{})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for i := range machines {
		var cells []lab.Cell
		for j := range each {
			cells = append(cells, cell(fmt.Sprintf("scenario-%d", j), lab.NFTables, lab.Kernel{Name: fmt.Sprintf("k%d", i)}, "1.37.2"))
		}
		m := s.Machine(cells)
		for _, part := range [][]lab.Cell{cells[:each/2], cells[each/2:]} {
			wg.Go(func() {
				for _, c := range part {
					for _, ev := range events(c, check("a.txtar:1", "N1", "probe", "reachable", "reachable")) {
						assert.NoError(t, m.Add(ev))
					}
					s.Run()
				}
			})
		}
	}
	wg.Wait()
	run, err := s.Close("")
	require.NoError(t, err)
	assert.Equal(t, Count{Pass: machines * each}, run.Count())
	again, err := Recover(dir)
	require.NoError(t, err)
	assert.Equal(t, run, again)
}

func TestRunJSONWhileItRuns(t *testing.T) {
	dir := t.TempDir()
	w := &watch{t: start, step: 0}
	s, err := create(dir, Options{Plan: plan()}, w.now)
	require.NoError(t, err)
	m := s.Machine(plan())
	count := func() int {
		run, err := Read(dir)
		require.NoError(t, err)
		return len(run.Cells)
	}
	add(t, m, events(plan()[0])...)
	assert.Equal(t, 0, count(), "not more than once a second")
	w.step = time.Second
	add(t, m, lab.Event{Type: lab.EventStart, Cell: plan()[1].ID()})
	assert.Equal(t, 1, count(), "but with the next event after it")
	_, err = s.Close("")
	require.NoError(t, err)
	assert.Equal(t, 4, count())
}

// A run that was killed at any byte of its events can be recovered, and keeps what had ended before.
func TestRecoverFromAnyCut(t *testing.T) {
	dir := t.TempDir()
	w := &watch{t: start, step: 10 * time.Millisecond}
	s, err := create(dir, Options{ID: "x", Plan: plan(), Claims: catalogue}, w.now)
	require.NoError(t, err)
	m := s.Machine(plan())
	for _, c := range plan() {
		add(t, m, events(c, check("a.txtar:1", "N1", "probe", "reachable", "reachable"))...)
	}
	whole, err := s.Close("")
	require.NoError(t, err)
	lines, err := os.ReadFile(filepath.Join(dir, eventsFile))
	require.NoError(t, err)
	first := bytes.IndexByte(lines, '\n') + 1

	for cut := first; cut < len(lines); cut += 37 {
		killed := filepath.Join(t.TempDir(), "killed")
		require.NoError(t, os.Mkdir(killed, 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(killed, eventsFile), lines[:cut], 0o666))
		run, err := Recover(killed)
		require.NoError(t, err)
		require.Len(t, run.Cells, len(plan()))
		ended := bytes.Count(lines[:cut], []byte(`"type":"cell-end"`))
		if last := lines[bytes.LastIndexByte(lines[:cut], '\n')+1 : cut]; bytes.Contains(last, []byte(`"type":"cell-end"`)) {
			ended-- // its line is cut
		}
		assert.Equal(t, Count{Pass: ended, Error: len(plan()) - ended}, run.Count(), "cut at %d", cut)
		for _, c := range run.Cells {
			if c.Verdict == lab.Error {
				assert.Contains(t, c.Reason, "kplab was killed")
			}
		}
		read, err := Read(killed)
		require.NoError(t, err)
		assert.Equal(t, run, read)
		assert.FileExists(t, filepath.Join(killed, matrixFile))
	}

	again, err := Recover(dir)
	require.NoError(t, err)
	assert.Equal(t, whole, again, "a run that was closed stays what it is")

	for _, text := range []string{"", "{", "hello\n", `{"type":"run"}` + "\n", string(lines[:first-9])} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, eventsFile), []byte(text), 0o666))
		_, err = Recover(dir)
		assert.ErrorContains(t, err, "does not begin as a kplab run does")
	}
	_, err = Recover(t.TempDir())
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

// A damaged line in the middle costs what it told, not the run.
func TestRecoverSkipsDamage(t *testing.T) {
	dir := t.TempDir()
	s, err := Create(dir, Options{Plan: plan()})
	require.NoError(t, err)
	m := s.Machine(plan())
	for _, c := range plan() {
		add(t, m, events(c)...)
	}
	_, err = s.Close("")
	require.NoError(t, err)
	file := filepath.Join(dir, eventsFile)
	lines, err := os.ReadFile(file)
	require.NoError(t, err)
	i := bytes.Index(lines, []byte(`"type":"cell-end"`))
	copy(lines[i:], `\x00`)
	require.NoError(t, os.WriteFile(file, lines, 0o666))
	run, err := Recover(dir)
	require.NoError(t, err)
	assert.Equal(t, Count{Pass: 3, Error: 1}, run.Count())
}

const killedDir = "KPLAB_TEST_KILLED_DIR"

// TestRecoverAfterKill has a process of its own killed while it stores a run.
func TestRecoverAfterKill(t *testing.T) {
	if dir := os.Getenv(killedDir); dir != "" {
		s, err := Create(dir, Options{Plan: plan()})
		require.NoError(t, err)
		m := s.Machine(plan())
		add(t, m, events(plan()[0])...)
		add(t, m, lab.Event{Type: lab.EventStart, Cell: plan()[1].ID()})
		fmt.Println("stored")
		for { // until killed
			add(t, m, lab.Event{Type: lab.EventStep, Cell: plan()[1].ID(), Message: strings.Repeat("x", 4000)})
		}
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestRecoverAfterKill$")
	cmd.Env = append(os.Environ(), killedDir+"="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "stored" {
	}
	_, err = Recover(dir)
	assert.ErrorIs(t, err, ErrInUse)
	require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
	assert.Error(t, cmd.Wait())

	run, err := Recover(dir)
	require.NoError(t, err)
	assert.Equal(t, Count{Pass: 1, Error: 3}, run.Count())
	assert.Equal(t, "cut off: kplab was killed", run.Cells[1].Reason)
	assert.Equal(t, "not started: kplab was killed", run.Cells[2].Reason)
}

func TestEvidenceStaysInside(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "run")
	outside := filepath.Join(parent, "outside")
	require.NoError(t, os.Mkdir(outside, 0o777))
	s, err := Create(dir, Options{Plan: plan()})
	require.NoError(t, err)
	c := plan()[0]
	m := s.Machine(plan())
	names := []string{
		"../../../escape", "/etc/passwd", "a/../../b", "..", "", "/", ".hidden", "x\x00y", "x y", "x:y", "a", "a/b", "a/b/c", "a", "run.json",
		strings.Repeat("n", 400), strings.Repeat("d/", 40) + "deep", "ä/ö", `..\..\win`, "nft.txt", "nft.txt.tmp",
	}
	for i, n := range names {
		add(t, m, lab.Event{Type: lab.EventEvidence, Cell: c.ID(), Path: n, Data: fmt.Appendf(nil, "%d", i)})
		add(t, m, lab.Event{Type: lab.EventEvidence, Cell: "../../" + c.ID(), Path: n})
	}
	add(t, m, lab.Event{Type: lab.EventEnd, Cell: c.ID(), Result: &lab.Result{Cell: c, Verdict: lab.Pass}})
	run, err := s.Close("")
	require.NoError(t, err)

	contents := map[string]bool{}
	for _, e := range run.Cells[0].Evidence {
		require.True(t, filepath.IsLocal(e), e)
		require.True(t, strings.HasPrefix(e, "cells/"+c.ID()+"/"), e)
		assert.Regexp(t, `^[A-Za-z0-9._+=@,/-]+$`, e)
		text, err := os.ReadFile(filepath.Join(dir, e))
		require.NoError(t, err)
		contents[string(text)] = true
	}
	assert.Len(t, contents, len(names)-1, "every name but the one that came twice has a file of its own")
	entries, err := os.ReadDir(parent)
	require.NoError(t, err)
	assert.Len(t, entries, 2)

	// Nor through a link that stands in the folder.
	linked := filepath.Join(parent, "linked")
	require.NoError(t, os.Mkdir(linked, 0o777))
	require.NoError(t, os.Symlink(outside, filepath.Join(linked, cellsDir)))
	s, err = Create(linked, Options{Plan: plan()})
	require.NoError(t, err)
	assert.Error(t, s.Machine(plan()).Add(lab.Event{Type: lab.EventEvidence, Cell: c.ID(), Path: "x"}))
	_, err = s.Close("")
	assert.Error(t, err)
	entries, err = os.ReadDir(outside)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func TestVerdictFollowsChecks(t *testing.T) {
	c := plan()[0]
	good := check("a.txtar:1", "N1", "probe", "reachable", "reachable")
	for name, tt := range map[string]struct {
		sent   lab.Result
		want   lab.Verdict
		reason string
	}{
		"pass":                      {lab.Result{Cell: c, Verdict: lab.Pass, Checks: []lab.Check{good}}, lab.Pass, ""},
		"pass with a deviation":     {lab.Result{Cell: c, Verdict: lab.Pass, Checks: []lab.Check{good, deviating(good)}}, lab.Fail, "a.txtar:1: probe: expected reachable, observed reachable"},
		"pass with a control amiss": {lab.Result{Cell: c, Verdict: lab.Pass, Checks: []lab.Check{deviating(control(good))}}, lab.Error, "a.txtar:1: probe: expected reachable, observed reachable"},
		"unknown verdict":           {lab.Result{Cell: c, Verdict: "great"}, lab.Error, `the machine sent the unknown verdict "great"`},
		"skip without a reason":     {lab.Result{Cell: c, Verdict: lab.Skip}, lab.Skip, "no reason was given"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Create(t.TempDir(), Options{})
			require.NoError(t, err)
			add(t, s.Machine([]lab.Cell{c}), lab.Event{Type: lab.EventEnd, Cell: c.ID(), Result: &tt.sent})
			run, err := s.Close("")
			require.NoError(t, err)
			assert.Equal(t, tt.want, run.Cells[0].Verdict)
			assert.Equal(t, tt.reason, run.Cells[0].Reason)
		})
	}
}

// A cell that is run again, because its machine was replaced, leaves nothing of the first try in its result.
func TestCellStartsAgain(t *testing.T) {
	s, err := Create(t.TempDir(), Options{Plan: plan()})
	require.NoError(t, err)
	c := plan()[0]
	m := s.Machine(plan()[:1])
	add(t, m, events(c, deviating(check("a.txtar:1", "N1", "probe", "reachable", "timeout")))[:3]...)
	require.NoError(t, m.Fail("the guest panicked"))
	add(t, m, events(c, check("a.txtar:1", "N1", "probe", "reachable", "reachable"))...)
	run, err := s.Close("")
	require.NoError(t, err)
	assert.Equal(t, lab.Pass, run.Cells[0].Verdict)
	assert.Len(t, run.Cells[0].Checks, 1)
}

// TestDiskFull fills a small file system that only this test's thread sees.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if !mountPrivately(t, dir, "size=256k") {
		t.Skip("needs to mount a tmpfs: root")
	}
	s, err := Create(filepath.Join(dir, "run"), Options{Plan: plan()})
	require.NoError(t, err)
	m := s.Machine(plan())
	add(t, m, events(plan()[0])...)
	first := m.Add(lab.Event{Type: lab.EventEvidence, Cell: plan()[1].ID(), Path: "big.pcap", Data: make([]byte, 1<<20)})
	require.ErrorIs(t, first, syscall.ENOSPC)
	assert.Contains(t, first.Error(), "free some room")
	second := m.Add(lab.Event{Type: lab.EventStart, Cell: plan()[2].ID()})
	assert.Equal(t, first, second, "one error, not one for each file")
	run, err := s.Close("")
	assert.Equal(t, first, err)
	assert.Equal(t, Count{Pass: 1, Error: 3}, run.Count(), "the run is still there to be shown")
	recovered, err := Recover(filepath.Join(dir, "run"))
	if assert.True(t, err == nil || errors.Is(err, syscall.ENOSPC), "%v", err) {
		assert.Equal(t, Count{Pass: 1, Error: 3}, recovered.Count())
	}
}

func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	if !mountPrivately(t, dir, "") {
		t.Skip("needs to mount a tmpfs: root")
	}
	s, err := Create(filepath.Join(dir, "run"), Options{Plan: plan()})
	require.NoError(t, err)
	_, err = s.Close("")
	require.NoError(t, err)
	require.NoError(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	_, err = Create(filepath.Join(dir, "other"), Options{})
	assert.ErrorIs(t, err, syscall.EROFS)
	_, err = Create(filepath.Join(dir, "run"), Options{Overwrite: true})
	assert.ErrorIs(t, err, syscall.EROFS)
}

func BenchmarkCellEnd(b *testing.B) {
	var checks []lab.Check
	for i := range 20 {
		checks = append(checks, check(fmt.Sprintf("a.txtar:%d", i), "N1", "probe ext tcp n1.secondary:nodeport/web", "reachable", "reachable by s1 from 192.0.2.9"))
	}
	var cells []lab.Cell
	for i := range 500 {
		cells = append(cells, cell(fmt.Sprintf("scenario-%d", i), lab.NFTables, onHost, "1.37.2"))
	}
	for b.Loop() {
		s, err := Create(b.TempDir(), Options{Plan: cells, Claims: catalogue})
		require.NoError(b, err)
		m := s.Machine(cells)
		for _, c := range cells {
			for _, ev := range events(c, checks...) {
				require.NoError(b, m.Add(ev))
			}
		}
		_, err = s.Close("")
		require.NoError(b, err)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(cells)), "µs/cell")
}
