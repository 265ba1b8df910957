package results

import (
	"fmt"
	"slices"
	"time"

	"kplab/lab"
)

// Types of the records that the store adds to the machines' events.
const (
	recordRun  lab.EventType = "run"     // the first line: Run as it began, and Plan
	recordPlan lab.EventType = "plan"    // Plan: cells that a machine is given and that the run's plan does not have
	recordEnd  lab.EventType = "run-end" // the last line of a run that was closed: Message is the reason for cells without an end
)

// record is one line of events.jsonl: an event, when the store took it, and from which machine. The bytes of evidence
// are not in it: Stored says where they are. A run is what its records make of it, live and in [Recover] alike.
type record struct {
	At     time.Time  `json:"at"`
	From   *origin    `json:"from,omitempty"`
	Stored string     `json:"stored,omitempty"` // of evidence: path relative to the run's folder
	Run    *Run       `json:"run,omitempty"`
	Plan   []lab.Cell `json:"plan,omitempty"`
	lab.Event
}

// origin names a machine by what its cells have in common.
type origin struct {
	Kernel    string `json:"kernel"`
	Userland  string `json:"userland"`
	Substrate string `json:"substrate"`
}

func originOf(c lab.Cell) origin { return origin{c.Kernel.Name, c.Userland.Name, c.Substrate} }

// id is the origin as a folder's name.
func (o origin) id() string { return safeName(o.Kernel + "." + o.Userland + "." + o.Substrate) }

// recorder makes a run of records.
type recorder struct {
	run      Run
	claims   []lab.Claim
	cells    []*slot // in the plan's order, then as they turned up
	byID     map[string]*slot
	machines map[origin]int // index into run.Machines
}

// slot is a cell on its way to a result.
type slot struct {
	id        string
	cell      lab.Cell
	begun     time.Time
	checks    []lab.Check
	gaps      []lab.Gap
	survivors []lab.Survivors
	states    []lab.State
	evidence  []string
	result    *lab.Result
}

func newRecorder(first record) *recorder {
	r := &recorder{run: *first.Run, byID: map[string]*slot{}, machines: map[origin]int{}}
	r.run.Command = orEmpty(r.run.Command)
	r.run.Machines = orEmpty(r.run.Machines)
	for _, c := range first.Run.Claims {
		r.claims = append(r.claims, c.Claim)
	}
	r.plan(first.Plan)
	return r
}

func (r *recorder) plan(cells []lab.Cell) {
	for _, c := range cells {
		if s := r.slot(c.ID()); s.cell.Scenario == "" {
			s.cell = c
		}
	}
}

// unknown returns those of the cells that the plan does not have.
func (r *recorder) unknown(cells []lab.Cell) []lab.Cell {
	var out []lab.Cell
	for _, c := range cells {
		if s := r.byID[c.ID()]; s == nil || s.cell.Scenario == "" {
			out = append(out, c)
		}
	}
	return out
}

func (r *recorder) slot(id string) *slot {
	s, ok := r.byID[id]
	if !ok {
		s = &slot{id: id}
		r.byID[id] = s
		r.cells = append(r.cells, s)
	}
	return s
}

// apply takes the next record.
func (r *recorder) apply(rec record) {
	r.run.DurationMs = rec.At.Sub(r.run.Started).Milliseconds()
	switch rec.Type {
	case lab.EventReady:
		if rec.Machine != nil && rec.From != nil {
			r.ready(*rec.From, *rec.Machine)
		}
	case recordPlan:
		r.plan(rec.Plan)
	case recordEnd:
		for _, ev := range r.unended(rec.Message, nil) {
			r.apply(record{At: rec.At, Event: ev})
		}
		r.run.Finished = rec.At
	}
	if rec.Cell == "" {
		return
	}
	s := r.slot(rec.Cell)
	switch rec.Type {
	case lab.EventStart:
		// A cell that starts again, after its machine was replaced, starts from nothing.
		s.begun, s.checks, s.gaps, s.survivors, s.states, s.evidence, s.result = rec.At, nil, nil, nil, nil, nil, nil
	case lab.EventCheck:
		if rec.Check != nil {
			s.checks = append(s.checks, *rec.Check)
		}
	case lab.EventGap:
		if rec.Gap != nil {
			s.gaps = append(s.gaps, *rec.Gap)
		}
	case lab.EventSurvive:
		if rec.Survive != nil {
			s.survivors = append(s.survivors, *rec.Survive)
		}
	case lab.EventState:
		if rec.State != nil {
			s.states = append(s.states, *rec.State)
		}
	case lab.EventEvidence:
		s.evidence = appendNew(s.evidence, rec.Stored)
	case lab.EventEnd:
		s.result = r.result(s, rec)
	}
}

func (r *recorder) ready(from origin, m lab.Machine) {
	entry := Machine{Kernel: from.Kernel, Userland: from.Userland, Substrate: from.Substrate, Machine: m}
	if i, ok := r.machines[from]; ok {
		r.run.Machines[i] = entry
		return
	}
	r.machines[from] = len(r.run.Machines)
	r.run.Machines = append(r.run.Machines, entry)
}

// result is what the end of a cell says, completed by what the store knows better: the evidence that arrived, the
// kernel that the machine turned out to have, and a verdict that follows from the checks.
func (r *recorder) result(s *slot, rec record) *lab.Result {
	result := lab.Result{Verdict: lab.Error, Reason: "the cell ended without a result"}
	if rec.Result != nil {
		result = *rec.Result
	}
	if result.Scenario == "" {
		result.Cell = s.cell
	}
	if result.Scenario == "" {
		result.Scenario = s.id
	}
	if i, ok := r.machines[originOf(result.Cell)]; ok {
		m := r.run.Machines[i]
		if result.Kernel.Release == "" {
			result.Kernel.Release, result.Kernel.Accelerator = m.Release, m.Accelerator
		}
	}
	if len(result.Checks) == 0 {
		result.Checks = s.checks
	}
	result.Checks = orEmpty(result.Checks)
	if len(result.Gaps) == 0 {
		result.Gaps = s.gaps
	}
	if len(result.Survivors) == 0 {
		result.Survivors = s.survivors
	}
	if len(result.States) == 0 {
		result.States = s.states
	}
	result.Evidence = nil // set when the run is taken: evidence may follow the end
	if result.DurationMs == 0 && !s.begun.IsZero() {
		result.DurationMs = rec.At.Sub(s.begun).Milliseconds()
	}
	if result.Repro == "" {
		result.Repro = result.Cell.Repro()
	}
	judge(&result)
	return &result
}

// judge makes sure that no verdict is better than the checks it stands on, and that each but pass has a reason.
func judge(r *lab.Result) {
	switch r.Verdict {
	case lab.Pass, lab.Fail, lab.Skip, lab.Error:
	default:
		r.Reason = fmt.Sprintf("the machine sent the unknown verdict %q", r.Verdict)
		r.Verdict = lab.Error
	}
	off := Deviations(*r)
	if r.Verdict == lab.Pass && len(off) > 0 {
		r.Verdict = lab.Fail
		if slices.ContainsFunc(off, func(c lab.Check) bool { return c.Control }) {
			r.Verdict = lab.Error
		}
	}
	if r.Reason != "" || r.Verdict == lab.Pass {
		return
	}
	r.Reason = "no reason was given"
	if len(off) > 0 {
		r.Reason = fmt.Sprintf("%s: %s: expected %s, observed %s", off[0].Step, off[0].What, brief(off[0].Expected), brief(off[0].Observed))
	}
}

// What the reasons of cells begin with that have not ended by themselves.
const (
	notStarted = "not started: "
	cutOff     = "cut off: "
)

// unended returns, for every cell without an end that is among only (nil: among all), the event that ends it.
func (r *recorder) unended(reason string, only []lab.Cell) []lab.Event {
	if reason == "" {
		reason = "the run ended before the cell did"
	}
	var events []lab.Event
	for _, s := range r.cells {
		if s.result != nil || only != nil && !slices.ContainsFunc(only, func(c lab.Cell) bool { return c.ID() == s.id }) {
			continue
		}
		why := notStarted + reason
		if !s.begun.IsZero() {
			why = cutOff + reason
		}
		events = append(events, lab.Event{
			Type: lab.EventEnd, Cell: s.id,
			Result: &lab.Result{Cell: s.cell, Verdict: lab.Error, Reason: why},
		})
	}
	return events
}

// take returns the run as it stands.
func (r *recorder) take() *Run {
	run := r.run
	run.Machines = slices.Clone(run.Machines)
	var all []lab.Result
	for _, s := range r.cells {
		if s.result != nil {
			result := *s.result
			result.Evidence = orEmpty(slices.Clone(s.evidence))
			slices.Sort(result.Evidence)
			all = append(all, result)
		}
	}
	run.Cells = joinRepeats(all)
	run.Claims = []ClaimResult{}
	if run.Sabotage == "" {
		run.Claims = Ledger(r.claims, &run)
	}
	return &run
}
