package results

import (
	"fmt"
	"io"
	"strings"

	"kplab/lab"
)

// repeatsSummary is "50 repeats of 14 cells: the verdict of 1 changed, in 2 more a check came out otherwise".
func repeatsSummary(run *Run, changes []Change) string {
	cells, most, verdicts := 0, 0, 0
	for _, c := range run.Cells {
		if len(c.Repeats) > 0 {
			cells++
			most = max(most, len(c.Repeats))
		}
	}
	if cells == 0 {
		return ""
	}
	for _, c := range changes {
		if len(c.Verdicts) > 1 {
			verdicts++
		}
	}
	s := fmt.Sprintf("%d repeats of %d cells: the verdict of %d changed", most, cells, verdicts)
	if rest := len(changes) - verdicts; rest > 0 {
		s += fmt.Sprintf(", in %d more a check came out otherwise", rest)
	}
	return s
}

// RepeatsText writes [Changes] for a terminal, and their sum; nothing for a run that repeats nothing.
func RepeatsText(w io.Writer, run *Run, o TextOptions) error {
	changes := Changes(run)
	summary := repeatsSummary(run, changes)
	if summary == "" {
		return nil
	}
	t := &text{TextOptions: o, run: run}
	labels := labelsOf(run)
	for _, c := range changes {
		verdict := lab.Pass
		if len(c.Verdicts) > 1 {
			verdict = c.Cell.Verdict
		}
		head := fmt.Sprintf("%s on %s: %s", c.Cell.Scenario, labels[columnOf(c.Cell.Cell)], repeatedOutcomes(c.Verdicts))
		for i, l := range wrap(head, t.width()-2) {
			if i == 0 {
				l = t.verdict(verdict, l)
			}
			t.line(strings.Repeat(" ", 2*min(i, 1)) + l)
		}
		for _, k := range c.Checks {
			for i, l := range wrap(k.Step+" "+oneLine(k.What)+": "+repeatedOutcomes(k.Outcomes).String(), t.width()-4) {
				t.line(strings.Repeat(" ", 2+2*min(i, 1)) + l)
			}
		}
	}
	t.title(summary)
	t.line("")
	_, err := io.WriteString(w, t.b.String())
	return err
}

// repeats writes [Changes] as Markdown.
func (m *markdown) repeats() {
	changes := Changes(m.run)
	summary := repeatsSummary(m.run, changes)
	if summary == "" {
		return
	}
	m.printf("## Repeats\n\n%s.\n\n", summary)
	for _, c := range changes {
		m.printf("- %s — %s: %s\n", mdText(c.Cell.Scenario), mdText(m.labels[columnOf(c.Cell.Cell)]), mdText(repeatedOutcomes(c.Verdicts).String()))
		for _, k := range c.Checks {
			m.printf("  - %s %s: %s\n", mdText(k.Step), mdCode(k.What), mdText(repeatedOutcomes(k.Outcomes).String()))
		}
	}
	if len(changes) > 0 {
		m.printf("\n")
	}
}
