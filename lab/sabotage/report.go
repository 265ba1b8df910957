package sabotage

import (
	"slices"

	"kplab/lab"
)

// Outcome is what a sabotage came to in a cell, and what all of them came to.
type Outcome string

const (
	Turned        Outcome = "turned"         // the verdict is fail or error
	Survived      Outcome = "survived"       // the verdict is still pass
	NotApplicable Outcome = "not-applicable" // the script never met what was broken, or the cell is skipped here
	Unknown       Outcome = "unknown"        // the lab could not tell
)

// Trial is one cell under one sabotage.
type Trial struct {
	Sabotage   string      `json:"sabotage"`
	Outcome    Outcome     `json:"outcome"`
	Verdict    lab.Verdict `json:"verdict"`
	Reason     string      `json:"reason,omitempty"` // what deviated, or why nothing is known
	Bites      int         `json:"bites"`            // how often the sabotage came to bear
	DurationMs int64       `json:"durationMs"`
}

// Try reads off a sabotaged cell's result what the sabotage came to.
//
// fail and error both turn a verdict, if the script ended by itself: a machine that died, a cell that ran out of time and a
// sabotage that could not be carried out say nothing. Nor does a verdict that turned though the script never met what was broken.
func Try(name string, r lab.Result) Trial {
	t := Trial{Sabotage: name, Outcome: Unknown, Verdict: r.Verdict, Reason: r.Reason, DurationMs: r.DurationMs}
	if r.Verdict == lab.Skip {
		t.Outcome = NotApplicable
		return t
	}
	if r.Sabotage == nil {
		return t
	}
	t.Bites = r.Sabotage.Bites
	switch {
	case r.Sabotage.Error != "":
		t.Reason = r.Sabotage.Error
	case r.Verdict == lab.Pass && (t.Bites > 0 || name == NoKubeProxy): // a cell that starts no kube-proxy cannot tell that there is none
		t.Outcome = Survived
	case r.Verdict == lab.Pass:
		t.Outcome = NotApplicable
	case t.Bites > 0:
		t.Outcome = Turned
	default:
		t.Reason = "deviates, though the script never met what was broken: " + t.Reason
	}
	return t
}

// Finding is what the sabotages say about one cell.
type Finding struct {
	lab.Cell
	// Outcome is Survived for a defect: the cell passes without kube-proxy, or under every sabotage that applies to it.
	Outcome Outcome `json:"outcome"`
	// Reason is why, for all but Turned.
	Reason   string   `json:"reason,omitempty"`
	Baseline Baseline `json:"baseline"`
	Trials   []Trial  `json:"trials"` // in the order of Kinds; those after the first that turned it may be absent
	Repeat   string   `json:"repeat"` // the command that repeats this finding alone
}

// Baseline is the cell without sabotage: one that does not pass cannot turn away from it.
type Baseline struct {
	Verdict    lab.Verdict `json:"verdict"`
	Reason     string      `json:"reason,omitempty"`
	DurationMs int64       `json:"durationMs"`
}

// NewFinding begins a finding with the cell's result without sabotage.
func NewFinding(r lab.Result) *Finding {
	f := &Finding{Cell: r.Cell, Baseline: Baseline{r.Verdict, r.Reason, r.DurationMs}, Trials: []Trial{}, Repeat: repeat(r.Cell)}
	f.judge()
	return f
}

// repeat is the command that tries all sabotages on one cell.
func repeat(c lab.Cell) string {
	return "kplab selftest " + c.Args() + " --all"
}

// Add takes the next trial.
func (f *Finding) Add(t Trial) {
	f.Trials = append(f.Trials, t)
	f.judge()
}

// Turned reports whether a sabotage has turned the cell.
func (f *Finding) Turned() bool { return f.any(Turned) }

func (f *Finding) any(o Outcome) bool {
	return slices.ContainsFunc(f.Trials, func(t Trial) bool { return t.Outcome == o })
}

// judge sets Outcome and Reason.
func (f *Finding) judge() {
	f.Outcome, f.Reason = Unknown, ""
	switch f.Baseline.Verdict {
	case lab.Pass:
	case lab.Skip:
		f.Outcome, f.Reason = NotApplicable, f.Baseline.Reason
		return
	default:
		f.Reason = "does not pass without sabotage: " + f.Baseline.Reason
		return
	}
	for _, t := range f.Trials {
		if t.Sabotage != NoKubeProxy {
			continue
		}
		switch t.Outcome {
		case Survived:
			f.Outcome, f.Reason = Survived, "passes without kube-proxy"
			return
		case Unknown:
			f.Reason = t.Sabotage + ": " + t.Reason
			return
		}
	}
	switch {
	case f.any(Turned):
		f.Outcome = Turned
	case f.any(Unknown):
		i := slices.IndexFunc(f.Trials, func(t Trial) bool { return t.Outcome == Unknown })
		f.Reason = f.Trials[i].Sabotage + ": " + f.Trials[i].Reason
	case f.any(Survived):
		f.Outcome, f.Reason = Survived, "passes under every sabotage that applies to it"
	default:
		f.Reason = "no sabotage was tried"
	}
}
