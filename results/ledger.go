package results

import (
	"fmt"
	"slices"
	"strings"

	"kplab/lab"
)

// Ledger says what each claim of the catalogue comes to across runs.
//
// A claim is contradicted if a check that came out as asserted says that reality is not what the claim says
// ([lab.Check.Contradicts]), or if one of its checks, controls aside, deviates. It is confirmed if at least one such check
// came out as asserted and nothing contradicts it; otherwise it is untested. Only cells that passed or failed count:
// a skipped cell saw nothing, and of an error cell nobody knows what it saw.
//
// Claims that checks name and the catalogue does not hold follow the catalogue's, with an id only.
func Ledger(catalogue []lab.Claim, runs ...*Run) []ClaimResult {
	entries := newLedger(catalogue, runs...)
	out := make([]ClaimResult, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.result())
	}
	return out
}

// newLedger gathers what the runs' cells say about each claim.
func newLedger(catalogue []lab.Claim, runs ...*Run) []*entry {
	b := ledger{labels: labelsOf(runs...), of: map[string]*entry{}}
	for _, c := range catalogue {
		b.entry(c.ID).claim = c
	}
	known := len(b.order)
	for _, run := range runs {
		for _, cell := range run.Cells {
			b.add(run.Dir, cell)
		}
	}
	slices.SortStableFunc(b.order[known:], func(x, y *entry) int { return compareNatural(x.claim.ID, y.claim.ID) })
	return b.order
}

// ledger is a ledger in the making.
type ledger struct {
	labels map[Column]string
	of     map[string]*entry
	order  []*entry
}

// maxContradictions is how many ways of being wrong a claim's note spells out; the matrix has them all.
const maxContradictions = 4

type entry struct {
	claim          lab.Claim
	tests          []*test
	contradictions []*contradiction
}

// test is a cell that could tell, with its setting and the folder of its run.
type test struct {
	cell    lab.Result
	setting string
	dir     string
}

// contradiction is one way in which reality is not as claimed, and where that was seen.
type contradiction struct {
	what     string
	asserted bool // the scenario asserts it; otherwise a check deviates
	tests    []*test
}

func (b *ledger) entry(id string) *entry {
	e, ok := b.of[id]
	if !ok {
		e = &entry{claim: lab.Claim{ID: id}}
		b.of[id] = e
		b.order = append(b.order, e)
	}
	return e
}

func (b *ledger) add(dir string, cell lab.Result) {
	told := &test{cell, b.labels[columnOf(cell.Cell)], dir}
	for _, c := range cell.Checks {
		if c.Claim == "" {
			continue
		}
		e := b.entry(c.Claim)
		if !tells(cell) {
			continue
		}
		switch {
		case c.OK && c.Contradicts != "":
			e.contradict(c.Contradicts, true, told)
		case !c.OK && !c.Control:
			e.contradict(fmt.Sprintf("%s: expected %s, observed %s (%s)", c.What, brief(c.Expected), brief(c.Observed), c.Step), false, told)
		case c.Control:
			continue
		}
		e.tests = appendNew(e.tests, told)
	}
}

func (e *entry) contradict(what string, asserted bool, told *test) {
	what = oneLine(what)
	for _, c := range e.contradictions {
		if c.what == what {
			c.tests = appendNew(c.tests, told)
			return
		}
	}
	e.contradictions = append(e.contradictions, &contradiction{what, asserted, []*test{told}})
}

func (e *entry) result() ClaimResult {
	r := ClaimResult{Claim: e.claim, Verdict: Untested, Cells: []string{}, Settings: settingsOf(e.tests)}
	for _, t := range e.tests {
		r.Cells = appendNew(r.Cells, t.cell.ID())
	}
	switch {
	case len(e.contradictions) > 0:
		r.Verdict = Contradicted
		var notes []string
		for i, c := range e.contradictions {
			if i == maxContradictions {
				notes = append(notes, fmt.Sprintf("and %d more", len(e.contradictions)-i))
				break
			}
			notes = append(notes, fmt.Sprintf("%s [%s]", c.what, settingOf(c.tests)))
		}
		r.Note = strings.Join(notes, "; ")
	case len(e.tests) > 0:
		r.Verdict = Confirmed
	}
	return r
}

// settingsOf names the tests' settings, each once.
func settingsOf(tests []*test) []string {
	settings := []string{}
	for _, t := range tests {
		settings = appendNew(settings, t.setting)
	}
	return settings
}

func appendNew[T comparable](list []T, x T) []T {
	if slices.Contains(list, x) {
		return list
	}
	return append(list, x)
}

// orEmpty makes JSON say [] and not null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
