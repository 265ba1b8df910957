package results

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"kplab/lab"
)

func TestExitStatus(t *testing.T) {
	run := func(finished time.Time, verdicts ...lab.Verdict) *Run {
		r := &Run{Finished: finished}
		for _, v := range verdicts {
			r.Cells = append(r.Cells, lab.Result{Verdict: v})
		}
		return r
	}
	for _, tt := range []struct {
		want int
		run  *Run
	}{
		{ExitOK, run(start, lab.Pass, lab.Pass)},
		{ExitOK, run(start, lab.Pass, lab.Skip)},
		{ExitOK, run(start, lab.Skip)},
		{ExitFail, run(start, lab.Pass, lab.Fail)},
		{ExitFail, run(start, lab.Error, lab.Fail)},
		{ExitFail, run(time.Time{}, lab.Fail)},
		{ExitUnknown, run(start, lab.Pass, lab.Error)},
		{ExitUnknown, run(start)},
		{ExitUnknown, run(time.Time{}, lab.Pass)},
	} {
		assert.Equal(t, tt.want, ExitStatus(tt.run), "%v", tt.run.Count())
	}
}

func TestMedianCellMs(t *testing.T) {
	of := func(ms ...int64) *Run {
		r := &Run{Cells: []lab.Result{{Verdict: lab.Skip}, {Verdict: lab.Error, DurationMs: 1}}}
		for _, d := range ms {
			r.Cells = append(r.Cells, lab.Result{Verdict: lab.Pass, DurationMs: d})
		}
		return r
	}
	assert.EqualValues(t, 0, of().MedianCellMs())
	assert.EqualValues(t, 7, of(7).MedianCellMs())
	assert.EqualValues(t, 20, of(30, 10).MedianCellMs())
	assert.EqualValues(t, 10, of(30, 10, 5).MedianCellMs())
}
