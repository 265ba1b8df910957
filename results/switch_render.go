package results

import (
	"fmt"
	"slices"
	"strings"

	"kplab/lab"
)

// switches writes the grid of changes of mode for a terminal: a line for each mode and way that they begin with, the figures of each
// change side by side, and below it what failed, what is left over and what became of foreign state.
func (t *text) switches(g *SwitchGrid) {
	t.title(SwitchTitle + ": " + g.Scenario)
	for _, l := range append([]string{SwitchCaveat}, strings.Join(g.Legend, "; ")+".") {
		for _, l := range wrap(l, t.width()) {
			t.line(t.paint(dim, l))
		}
	}
	rowHead := columns("from, by")
	widths := make([]int, len(g.names)) // of the figures of a change
	for i, name := range g.names {
		widths[i] = columns(name)
	}
	for _, row := range g.Rows {
		rowHead = max(rowHead, columns(row.head()))
		for _, s := range row.Cells {
			for i, name := range g.names {
				if s != nil {
					widths[i] = max(widths[i], columns(s.Figure(name)))
				}
			}
		}
	}
	width := columns("– skip")
	figures := 1 // the verdict's mark
	for _, w := range widths {
		figures += 1 + w
	}
	width = max(width, figures)
	heads := g.Heads()
	for from := 0; from < len(heads); {
		n := max(1, min(len(heads)-from, (t.width()-rowHead)/(gap+width)))
		t.switchBlock(g, from, from+n, rowHead, width, widths)
		from += n
	}
	for _, row := range g.Rows {
		for i, s := range row.Cells {
			if s == nil || len(s.Failures()) == 0 {
				continue
			}
			for l, line := range wrap(fmt.Sprintf("failed from %s %s by %s: %s", row.From, heads[i], row.By, strings.Join(s.Failures(), "; ")), t.width()-4) {
				t.line(strings.Repeat(" ", 2+2*min(l, 1)) + line)
			}
		}
	}
	for _, r := range g.Remainders() {
		for i, l := range wrap(r.Text, t.width()-2-2) {
			t.line(strings.Repeat(" ", 2+2*min(i, 1)) + t.paint(bold, l))
		}
		for _, l := range wrap(strings.Join(r.Where, "; "), t.width()-6) {
			t.line(strings.Repeat(" ", 6) + l)
		}
	}
	t.line("")
}

// switchBlock writes some of the grid's columns, those from one up to another.
func (t *text) switchBlock(g *SwitchGrid, from, to, rowHead, width int, widths []int) {
	var broken [][]string
	lines := 0
	for _, h := range g.Heads()[from:to] {
		broken = append(broken, wrap(h, width))
		lines = max(lines, len(broken[len(broken)-1]))
	}
	for l := range lines {
		row := pad("", rowHead)
		for _, b := range broken {
			s := ""
			if l < len(b) {
				s = b[l]
			}
			row += strings.Repeat(" ", gap) + pad(s, width)
		}
		t.line(t.paint(bold, strings.TrimRight(row, " ")))
	}
	row, rule := pad("from, by", rowHead), strings.Repeat("─", rowHead)
	for range g.Columns[from:to] {
		names := " "
		for i, name := range g.names {
			names += " " + lead(name, widths[i])
		}
		row += strings.Repeat(" ", gap) + pad(names, width)
		rule += strings.Repeat(" ", gap) + strings.Repeat("─", width)
	}
	t.line(t.paint(bold, strings.TrimRight(row, " ")))
	t.line(t.paint(dim, rule))
	for _, r := range g.Rows {
		if !slices.ContainsFunc(r.Cells[from:to], func(s *Switch) bool { return s != nil }) {
			continue
		}
		row := pad(r.head(), rowHead)
		for _, s := range r.Cells[from:to] {
			row += strings.Repeat(" ", gap)
			if s == nil {
				row += strings.Repeat(" ", width)
				continue
			}
			text := Glyph(s.Verdict)
			if len(s.Gaps) == 0 && len(s.Survivors) == 0 {
				text += " " + string(s.Verdict)
			} else {
				for i, name := range g.names {
					text += " " + lead(s.Figure(name), widths[i])
				}
			}
			row += t.verdict(s.Verdict, text) + strings.Repeat(" ", max(0, width-columns(text)))
		}
		t.line(row)
	}
}

// head is the row's name where a column's head says the rest.
func (r SwitchRow) head() string { return string(r.From) + ", " + r.By }

// lead is pad with the room before s.
func lead(s string, width int) string { return strings.Repeat(" ", max(0, width-columns(s))) + s }

// switches writes the grid of changes of mode as a table whose fields say all of each.
func (m *markdown) switches(g *SwitchGrid) {
	m.printf("## %s: %s\n\n%s\n\n", SwitchTitle, mdText(g.Scenario), SwitchCaveat)
	for _, l := range g.Legend {
		m.printf("- %s\n", mdText(l))
	}
	m.printf("\n| change |")
	for _, h := range g.Heads() {
		m.printf(" %s |", mdText(h))
	}
	m.printf("\n|---|%s\n", strings.Repeat("---|", len(g.Columns)))
	for _, row := range g.Rows {
		m.printf("| %s |", mdText(row.Name()))
		for _, s := range row.Cells {
			if s == nil {
				m.printf("  |")
				continue
			}
			verdict := Glyph(s.Verdict) + " " + string(s.Verdict)
			if s.Verdict == lab.Fail || s.Verdict == lab.Error {
				verdict = "**" + verdict + "**"
			}
			m.printf(" %s", verdict)
			for _, l := range append(s.Traffic(), s.Remains()...) {
				m.printf("<br>%s", mdText(l))
			}
			m.printf(" |")
		}
		m.printf("\n")
	}
	m.printf("\n")
}
