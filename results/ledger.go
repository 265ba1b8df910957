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
	b := ledger{labels: labelsOf(runs...), of: map[string]*entry{}}
	for _, c := range catalogue {
		b.entry(c.ID).claim = c
	}
	known := len(b.order)
	for _, run := range runs {
		for _, cell := range run.Cells {
			b.add(cell)
		}
	}
	slices.SortStableFunc(b.order[known:], func(x, y *entry) int { return compareNatural(x.claim.ID, y.claim.ID) })
	out := make([]ClaimResult, 0, len(b.order))
	for _, e := range b.order {
		out = append(out, e.result())
	}
	return out
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
	tested         bool
	cells          []string
	settings       []string
	contradictions []contradiction
}

// contradiction is one way in which reality is not as claimed, and where that was seen.
type contradiction struct {
	what     string
	settings []string
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

func (b *ledger) add(cell lab.Result) {
	for _, c := range cell.Checks {
		if c.Claim == "" {
			continue
		}
		e := b.entry(c.Claim)
		if !tells(cell) {
			continue
		}
		setting := b.labels[columnOf(cell.Cell)]
		switch {
		case c.OK && c.Contradicts != "":
			e.contradict(c.Contradicts, setting)
		case !c.OK && !c.Control:
			e.contradict(fmt.Sprintf("%s: expected %s, observed %s (%s)", c.What, brief(c.Expected), brief(c.Observed), c.Step), setting)
		case c.Control:
			continue
		}
		e.tested = true
		e.cells = appendNew(e.cells, cell.ID())
		e.settings = appendNew(e.settings, setting)
	}
}

func (e *entry) contradict(what, setting string) {
	what = oneLine(what)
	for i := range e.contradictions {
		if c := &e.contradictions[i]; c.what == what {
			c.settings = appendNew(c.settings, setting)
			return
		}
	}
	e.contradictions = append(e.contradictions, contradiction{what, []string{setting}})
}

func (e *entry) result() ClaimResult {
	r := ClaimResult{Claim: e.claim, Verdict: Untested, Cells: orEmpty(e.cells), Settings: orEmpty(e.settings)}
	switch {
	case len(e.contradictions) > 0:
		r.Verdict = Contradicted
		var notes []string
		for i, c := range e.contradictions {
			if i == maxContradictions {
				notes = append(notes, fmt.Sprintf("and %d more", len(e.contradictions)-i))
				break
			}
			notes = append(notes, fmt.Sprintf("%s [%s]", c.what, strings.Join(c.settings, "; ")))
		}
		r.Note = strings.Join(notes, "; ")
	case e.tested:
		r.Verdict = Confirmed
	}
	return r
}

func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// orEmpty makes JSON say [] and not null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
