package results

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"kplab/lab"
)

const (
	gapsTitle  = "What steady traffic met while something changed"
	gapsCaveat = "New connections, or datagrams of a UDP flow, at a fixed rate. The gap is from the start of the first that failed to the start of the first that succeeded after the last failure."
)

// Gaps returns what steady traffic met in each cell, by scenario, change and traffic, side by side as [Differences] are. Looks at
// traffic before any change are left out, and changes of mode that are in [SwitchGrids].
func Gaps(run *Run) (rows []Difference) {
	var unharmed []span // of each row: how many attempts there were where none failed
	for _, cell := range run.Cells {
		if _, _, ok := change(cell.Cell); ok {
			continue
		}
		column := columnOf(cell.Cell)
		for _, g := range cell.Gaps {
			if g.During == lab.BeforeAnyChange {
				continue
			}
			what := g.During + ": " + g.Traffic
			if g.Kind != "" {
				what += " (" + gapKind(g) + ")"
			}
			i := slices.IndexFunc(rows, func(d Difference) bool { return d.Scenario == cell.Scenario && d.What == what })
			if i < 0 {
				i = len(rows)
				rows = append(rows, Difference{Scenario: cell.Scenario, What: what})
				unharmed = append(unharmed, span{})
			}
			o := Outcome{Column: column, Observed: gapText(g), OK: true}
			if g.Failed == 0 {
				o.Observed = ""
				unharmed[i].add(g.Attempts)
			}
			rows[i].Steps = appendNew(rows[i].Steps, g.Step)
			rows[i].Outcomes = appendNew(rows[i].Outcomes, o)
		}
	}
	for i := range rows {
		for j := range rows[i].Outcomes {
			if o := &rows[i].Outcomes[j]; o.Observed == "" {
				o.Observed = "none of " + unharmed[i].String()
			}
		}
	}
	return rows
}

// span is the least and the most of some counts.
type span struct{ from, to int }

func (s *span) add(n int) {
	if s.to == 0 {
		s.from = n
	}
	s.from, s.to = min(s.from, n), max(s.to, n)
}

// String is "312", or "126 to 146".
func (s span) String() string {
	if s.from == s.to {
		return fmt.Sprint(s.to)
	}
	return fmt.Sprintf("%d to %d", s.from, s.to)
}

// gapText is "none of 312", "240 ms, 12 of 300 (12 timeout)", "down for 900 ms, 40 of 40 (40 refused)".
func gapText(g lab.Gap) string {
	if g.Failed == 0 {
		return fmt.Sprintf("none of %d", g.Attempts)
	}
	text := fmt.Sprintf("%.0f ms, %d of %d (%s)", g.Ms, g.Failed, g.Attempts, failures(g))
	if g.Open {
		text = "down for " + text
	}
	return text
}

// failures is "12 refused, 3 timeout".
func failures(g lab.Gap) string {
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(g.Outcomes)) {
		if kind != "reachable" {
			all = append(all, fmt.Sprintf("%d %s", g.Outcomes[kind], kind))
		}
	}
	return strings.Join(all, ", ")
}
