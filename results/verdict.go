package results

import (
	"fmt"
	"slices"
	"strings"

	"kplab/lab"
)

// Exit statuses of every verb that runs cells. 2 is left to usage and bad input.
const (
	ExitOK      = 0 // everything as asserted; skipped cells have a declared reason and do not count
	ExitFail    = 1 // at least one check deviates
	ExitUnknown = 3 // no check deviates, but the lab could not tell everything
)

// ExitStatus says how a process that made this run should exit. A deviation outweighs an error: what was seen to deviate
// stays true whatever else could not be told. A cell whose verdict changed between its repeats counts as a deviation. A run
// without any cell, one that was never finished and one that lacks a shard have not told everything.
func ExitStatus(run *Run) int {
	n := run.Count()
	switch {
	case n.Fail > 0, slices.ContainsFunc(run.Cells, VerdictChanged):
		return ExitFail
	case n.Error > 0, len(run.Cells) == 0, run.Finished.IsZero(), len(run.MissingShards()) > 0:
		return ExitUnknown
	}
	return ExitOK
}

// Count is the number of cells of each verdict.
type Count struct{ Pass, Fail, Skip, Error int }

func (c Count) String() string {
	return fmt.Sprintf("%d pass, %d fail, %d skip, %d error", c.Pass, c.Fail, c.Skip, c.Error)
}

func (c *Count) add(v lab.Verdict) {
	switch v {
	case lab.Pass:
		c.Pass++
	case lab.Fail:
		c.Fail++
	case lab.Skip:
		c.Skip++
	default:
		c.Error++
	}
}

// Count counts the cells by verdict.
func (r *Run) Count() Count {
	var n Count
	for _, c := range r.Cells {
		n.add(c.Verdict)
	}
	return n
}

// MedianCellMs is the median duration, in milliseconds, of the cells that ran to their end (pass or fail), 0 if none did.
func (r *Run) MedianCellMs() int64 {
	var ms []int64
	for _, c := range r.Cells {
		if tells(c) {
			ms = append(ms, c.DurationMs)
		}
	}
	if len(ms) == 0 {
		return 0
	}
	slices.Sort(ms)
	return (ms[(len(ms)-1)/2] + ms[len(ms)/2]) / 2
}

// Summary is the run in one line: "14 pass, 1 fail, 2 skip, 0 error in 42.3s, median cell 1.2s".
func (r *Run) Summary() string {
	s := fmt.Sprintf("%s in %s", r.Count(), Seconds(r.DurationMs))
	if ms := r.MedianCellMs(); ms > 0 {
		s += ", median cell " + Seconds(ms)
	}
	if r.Finished.IsZero() {
		s += " (the run is not finished)"
	}
	if missing := r.MissingShards(); len(missing) > 0 {
		s += " (missing: shard " + strings.Join(missing, ", ") + ")"
	}
	return s
}

// tells reports whether a cell's checks say something about the system.
func tells(r lab.Result) bool { return r.Verdict == lab.Pass || r.Verdict == lab.Fail }

// Deviations returns the checks that are not as asserted.
func Deviations(r lab.Result) []lab.Check {
	var out []lab.Check
	for _, c := range r.Checks {
		if !c.OK {
			out = append(out, c)
		}
	}
	return out
}
