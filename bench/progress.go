package bench

import (
	"fmt"
	"io"
	"time"

	"kplab/lab"
)

// Progress follows one machine's trials, and says how long the rest will take.
type Progress struct {
	w         io.Writer
	trials    []lab.Trial
	unit      float64
	done      int
	began     time.Time // of the trial that runs
	estimated time.Duration
	took      time.Duration
	trouble   int
	said      time.Time // when the last line was
}

// quietTooLong is after how long a trial's single measurements are told.
const quietTooLong = 15 * time.Second

// NewProgress says what it follows. Lines go to w.
func NewProgress(w io.Writer, trials []lab.Trial) *Progress {
	return &Progress{w: w, trials: trials, unit: 1}
}

// Add takes in an event of the machine.
func (p *Progress) Add(e lab.Event) {
	switch e.Type {
	case lab.EventReady:
		if e.Machine != nil {
			p.unit = e.Machine.Unit
			fmt.Fprintf(p.w, "kernel %s (%s) is up: %d cores, %.1f times slower than the reference; about %s for its %d trials\n",
				e.Machine.Release, e.Machine.Accelerator, e.Machine.Cores, e.Machine.Unit, p.left(), len(p.trials))
		}
	case lab.EventTrial:
		p.began, p.said, p.trouble = time.Now(), time.Now(), 0
	case lab.EventMeasurement:
		m := e.Measurement
		switch {
		case m == nil:
		case m.Error != "":
			p.trouble++
			fmt.Fprintf(p.w, "  %s: %s\n", m.Name, m.Error)
		case len(m.Values) > 0 && time.Since(p.said) > quietTooLong:
			fmt.Fprintf(p.w, "  %s: %s %s\n", m.Name, short(m.Values[0].Value), m.Values[0].Unit)
		default:
			return
		}
		p.said = time.Now()
	case lab.EventTrialEnd:
		if e.Trial == nil {
			return
		}
		took := time.Since(p.began)
		p.said = time.Now()
		p.done++
		p.took += took
		p.estimated += Estimate(*e.Trial, p.unit)
		if e.Message != "" && p.trouble == 0 {
			fmt.Fprintf(p.w, "  %s\n", e.Message)
		}
		fmt.Fprintf(p.w, "[%*d/%d] %6.1fs  %s; about %s left\n", len(fmt.Sprint(len(p.trials))), p.done, len(p.trials), took.Seconds(), e.Trial, p.left())
	}
}

// left estimates what is to come, by how right the estimates were so far.
func (p *Progress) left() time.Duration {
	var left time.Duration
	for _, t := range p.trials[min(p.done, len(p.trials)):] {
		left += Estimate(t, p.unit)
	}
	if p.estimated > 0 {
		left = time.Duration(float64(left) * float64(p.took) / float64(p.estimated))
	}
	return left.Round(time.Second)
}
