package results

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"kplab/lab"
)

// joinRepeats makes one result of each cell that ran several times: that of the first of its worst repeats, with all in
// Repeats. The order is that of the cells' first repeats.
func joinRepeats(all []lab.Result) []lab.Result {
	joined := []lab.Result{}
	at := map[string]int{}
	for _, r := range all {
		if r.Repeat == 0 {
			joined = append(joined, r)
			continue
		}
		once := r.Once().ID()
		i, seen := at[once]
		if !seen {
			i = len(joined)
			at[once] = i
			joined = append(joined, r)
		} else if worse(r.Verdict, joined[i].Verdict) {
			r.Repeats = joined[i].Repeats
			joined[i] = r
		}
		joined[i].Repeats = append(joined[i].Repeats, lab.Repeat{
			Repeat: r.Repeat, Verdict: r.Verdict, Reason: r.Reason, DurationMs: r.DurationMs, Checks: r.Checks, Evidence: r.Evidence,
		})
	}
	for i := range joined {
		if c := &joined[i]; VerdictChanged(*c) {
			c.Reason = fmt.Sprintf("the verdict changed between repeats (%s); repeat %d: %s", tally(c.Repeats, verdictOf), c.Repeat, c.Reason)
		}
	}
	return joined
}

// worse reports whether a verdict says more against a cell than another: a deviation that was seen stays true, and a skip
// among passes is a lab that does not know itself.
func worse(a, b lab.Verdict) bool {
	rank := []lab.Verdict{lab.Pass, lab.Skip, lab.Error, lab.Fail}
	return slices.Index(rank, a) > slices.Index(rank, b)
}

// VerdictChanged reports whether a cell's repeats do not all have the same verdict. Those that did not end by themselves, in a
// run that was interrupted or on a machine that died, have none.
func VerdictChanged(r lab.Result) bool { return len(tally(r.Repeats, verdictOf)) > 1 }

// verdictOf is a repeat's verdict, if it is one of its own.
func verdictOf(r lab.Repeat) (string, bool) {
	return string(r.Verdict), !strings.HasPrefix(r.Reason, notStarted) && !strings.HasPrefix(r.Reason, cutOff)
}

// RepeatedOutcome is what some of a cell's repeats came to.
type RepeatedOutcome struct {
	Outcome string
	Repeats []int
}

// repeatedOutcomes are the ways in which repeats came out, the most frequent first.
type repeatedOutcomes []RepeatedOutcome

// String is "48 pass, 2 fail (repeat 17, 31)": those that are not the most frequent are named by their numbers.
func (o repeatedOutcomes) String() string {
	var parts []string
	for i, x := range o {
		s := fmt.Sprintf("%d %s", len(x.Repeats), x.Outcome)
		if i > 0 {
			var numbers []string
			for _, n := range x.Repeats {
				numbers = append(numbers, fmt.Sprint(n))
			}
			s += " (repeat " + list(numbers, maxCells, ", ") + ")"
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, ", ")
}

// tally sorts repeats by what read finds in them; those where it finds nothing are left out.
func tally(repeats []lab.Repeat, read func(lab.Repeat) (string, bool)) repeatedOutcomes {
	var all repeatedOutcomes
	for _, r := range repeats {
		outcome, ok := read(r)
		if !ok {
			continue
		}
		i := slices.IndexFunc(all, func(o RepeatedOutcome) bool { return o.Outcome == outcome })
		if i < 0 {
			i = len(all)
			all = append(all, RepeatedOutcome{Outcome: outcome})
		}
		all[i].Repeats = append(all[i].Repeats, r.Repeat)
	}
	slices.SortStableFunc(all, func(a, b RepeatedOutcome) int { return len(b.Repeats) - len(a.Repeats) })
	return all
}

// Change is a cell whose repeats did not all come out alike.
type Change struct {
	Cell     lab.Result
	Verdicts []RepeatedOutcome // one where only checks changed
	Checks   []CheckChange
}

// CheckChange is a check that did not come out alike in all repeats of its cell.
type CheckChange struct {
	Step, What string
	Outcomes   []RepeatedOutcome
}

// Changes returns the cells whose verdict changed between repeats, or the outcome of one of whose checks did. The outcome of a
// check is the first word of what was observed ("reachable", whichever endpoint answered), and whether it was as expected. A
// repeat that ended early does not count where it did not get to.
func Changes(run *Run) []Change {
	var all []Change
	for _, cell := range run.Cells {
		c := Change{Cell: cell, Verdicts: tally(cell.Repeats, verdictOf)}
		c.Checks = changedChecks(cell.Repeats)
		if len(c.Verdicts) > 1 || len(c.Checks) > 0 {
			all = append(all, c)
		}
	}
	return all
}

// repeatedCheck names a check within a cell: the same line may observe the same twice.
type repeatedCheck struct {
	step, what string
	nth        int
}

func changedChecks(repeats []lab.Repeat) (changes []CheckChange) {
	var order []repeatedCheck
	made := map[int]map[repeatedCheck]lab.Check{} // by the repeat's number
	for _, r := range repeats {
		made[r.Repeat] = map[repeatedCheck]lab.Check{}
		count := map[repeatedCheck]int{}
		for _, k := range r.Checks {
			key := repeatedCheck{step: k.Step, what: k.What}
			count[key]++
			key.nth = count[key]
			made[r.Repeat][key] = k
			if !slices.Contains(order, key) {
				order = append(order, key)
			}
		}
	}
	slices.SortStableFunc(order, func(a, b repeatedCheck) int { return compareStep(a.step, b.step) })
	for _, key := range order {
		outcomes := tally(repeats, func(r lab.Repeat) (string, bool) {
			k, ok := made[r.Repeat][key]
			if !ok {
				return "was not made", r.Verdict == lab.Pass || r.Verdict == lab.Fail
			}
			return outcomeWord(k), true
		})
		if len(outcomes) > 1 {
			changes = append(changes, CheckChange{key.step, key.what, outcomes})
		}
	}
	return changes
}

// outcomeWord is a check's outcome without what may differ from one repeat to the next; of one that deviates it is all of it.
func outcomeWord(k lab.Check) string {
	if !k.OK {
		return fit(oneLine(k.Observed), maxObserved) + " " + Glyph(lab.Fail)
	}
	observed := oneLine(k.Observed)
	if word := firstWord(observed); word != "" && !distribution.MatchString(observed) {
		return word
	}
	return "as expected"
}

// distribution is how connections fell on endpoints: "s1 12, s2 28". Even which endpoint is named is chance.
var distribution = regexp.MustCompile(`^[a-z0-9-]+ \d+(, [a-z0-9-]+ \d+)*$`)
