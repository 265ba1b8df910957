package results

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"kplab/lab"
)

// Text writes a run for a terminal: the matrix, everything that failed, erred or was skipped with what to look at and how
// to repeat it, and the summary line. Without colour it is plain text. Only what is to be copied, paths and commands, may
// be wider than o.Width. Like [DifferencesText] it ends with an empty line.
func Text(w io.Writer, run *Run, o TextOptions) error {
	t := &text{TextOptions: o, run: run, matrix: NewMatrix(run)}
	t.grid()
	t.findings()
	t.title(run.Summary())
	t.line("")
	_, err := io.WriteString(w, t.b.String())
	return err
}

// DifferencesText writes [Differences] for a terminal, one to a line where they fit; nothing if there are none.
func DifferencesText(w io.Writer, run *Run, o TextOptions) error {
	t := &text{TextOptions: o, run: run, matrix: NewMatrix(run)}
	t.differences()
	_, err := io.WriteString(w, t.b.String())
	return err
}

// text is the text of a run in the making.
type text struct {
	TextOptions
	run    *Run
	matrix *Matrix
	b      strings.Builder
}

func (t *text) line(s string) { t.b.WriteString(strings.TrimRight(s, " ") + "\n") }

func (t *text) title(s string) { t.line(t.paint(bold, s)) }

const (
	labelWidth = 10 // columns of "observed  "
	maxLines   = 12 // of one text beside a label: what was observed may be all that a tool said
)

// labeled writes "  label     text", with text wrapped beside the label.
func (t *text) labeled(indent int, label, s string) {
	lines := wrap(printable(s), t.width()-indent-labelWidth)
	if len(lines) > maxLines {
		more := fmt.Sprintf("(%d lines more in %s)", len(lines)-maxLines+1, runFile)
		lines = append(lines[:maxLines-1], more)
	}
	for i, l := range lines {
		if i > 0 {
			label = ""
		}
		t.line(strings.Repeat(" ", indent) + t.paint(dim, pad(label, labelWidth)) + l)
	}
}

// verbatim is labeled for what is to be copied: it is never broken.
func (t *text) verbatim(indent int, label, s string) {
	t.line(strings.Repeat(" ", indent) + t.paint(dim, pad(label, labelWidth)) + oneLine(s))
}

const gap = 2 // columns between the matrix's columns

// grid writes the matrix: in one block if it fits with headers in full or broken into more lines, or else in several.
func (t *text) grid() {
	m := t.matrix
	if len(m.Columns) == 0 {
		t.line("No cell has a result.")
		t.line("")
		return
	}
	heads := headers(m.Columns)
	natural := make([]int, len(m.Columns)) // width of each column with its header in full
	narrow := make([]int, len(m.Columns))  // and with its header broken up
	for i, c := range m.Columns {
		narrow[i] = columns("✓ pass 10.0s")
		for _, s := range m.Scenarios {
			narrow[i] = max(narrow[i], columns(cellText(m.Cell(s, c))))
		}
		natural[i] = narrow[i]
		for _, h := range heads[i] {
			natural[i] = max(natural[i], columns(h))
		}
	}
	rowHead := columns("scenario")
	for _, s := range m.Scenarios {
		rowHead = max(rowHead, columns(s))
	}
	rowHead = min(rowHead, t.width()-gap-slices.Max(narrow))

	for from := 0; from < len(m.Columns); {
		to, widths := t.block(rowHead, natural[from:], narrow[from:])
		to += from
		t.rows(m.Columns[from:to], heads[from:to], rowHead, widths)
		t.line("")
		from = to
	}
}

// block returns how many of the columns go side by side, and their widths.
func (t *text) block(rowHead int, natural, narrow []int) (int, []int) {
	room := t.width() - rowHead
	need := func(widths []int) int {
		sum := 0
		for _, w := range widths {
			sum += gap + w
		}
		return sum
	}
	if need(natural) <= room {
		return len(natural), natural
	}
	n := len(narrow)
	for n > 1 && need(narrow[:n]) > room {
		n--
	}
	// What is left over goes to the columns whose headers are broken, a column at a time.
	widths := slices.Clone(narrow[:n])
	for grew := true; grew; {
		grew = false
		for i := range widths {
			if widths[i] < natural[i] && need(widths) < room {
				widths[i]++
				grew = true
			}
		}
	}
	return n, widths
}

func (t *text) rows(cols []Column, heads [][]string, rowHead int, widths []int) {
	// Each header line takes as many lines as its most broken one, so that versions stand beside versions.
	for i := range heads[0] {
		var broken [][]string
		lines := 0
		for c := range cols {
			b := wrap(heads[c][i], widths[c])
			broken = append(broken, b)
			lines = max(lines, len(b))
		}
		for l := range lines {
			row := pad("", rowHead)
			if i == 0 && l == 0 {
				row = pad("scenario", rowHead)
			}
			for c := range cols {
				s := ""
				if l < len(broken[c]) {
					s = broken[c][l]
				}
				row += strings.Repeat(" ", gap) + pad(s, widths[c])
			}
			t.line(t.paint(bold, strings.TrimRight(row, " ")))
		}
	}
	rule := strings.Repeat("─", rowHead)
	for _, w := range widths {
		rule += strings.Repeat(" ", gap) + strings.Repeat("─", w)
	}
	t.line(t.paint(dim, rule))
	for _, s := range t.matrix.Scenarios {
		row := pad(fit(s, rowHead), rowHead)
		for i, c := range cols {
			cell := t.matrix.Cell(s, c)
			row += strings.Repeat(" ", gap)
			if cell != nil {
				row += t.verdict(cell.Verdict, cellText(cell))
			}
			row += strings.Repeat(" ", widths[i]-columns(cellText(cell)))
		}
		t.line(row)
	}
}

const (
	manyOutcomes = 3  // up to here each setting is named before its outcome, beyond each outcome before its settings
	maxObserved  = 60 // columns of one observation in a row of several
)

func (t *text) differences() {
	t.section("What differs between the modes", Caveat(t.matrix.Columns), Differences(t.run))
	t.section("What differs between the substrates", "Each is a finding, or a fault of an env.", SubstrateDifferences(t.run))
	for _, g := range SwitchGrids(t.run) {
		t.switches(g)
	}
	t.section(gapsTitle, gapsCaveat, Gaps(t.run))
}

// section lists differences under a title, with a caveat that may be "".
func (t *text) section(title, s string, all []Difference) {
	if len(all) == 0 {
		return
	}
	t.title(title)
	if s != "" {
		for _, l := range wrap(s, t.width()) {
			t.line(t.paint(dim, l))
		}
	}
	short := shortLabelsOf(t.run)
	for _, d := range joinAlike(all) {
		what := d.Where() + " " + oneLine(d.What) + d.note()
		outcomes := d.outcomes(short)
		row := strings.Join(outcomes, " | ")
		if 2+columns(what)+2+columns(row) <= t.width() {
			t.line("  " + what + "  " + t.paint(bold, row))
			continue
		}
		for _, l := range wrap(what, t.width()-2) {
			t.line("  " + l)
		}
		if 6+columns(row) <= t.width() {
			t.line("      " + t.paint(bold, row))
			continue
		}
		for _, s := range outcomes {
			for i, l := range wrap(s, t.width()-8) {
				t.line(strings.Repeat(" ", 6+2*min(i, 1)) + t.paint(bold, l))
			}
		}
	}
	t.line("")
}

// mark flags an observation that is not as asserted.
func (o Outcome) mark() string {
	if o.OK {
		return ""
	}
	return " " + Glyph(lab.Fail)
}

// outcomes returns "ipvs reachable", "nftables refused"; of many settings "reachable: ipvs, iptables", "refused: nftables".
func (d Difference) outcomes(short map[Column]string) []string {
	var out []string
	if len(d.Outcomes) <= manyOutcomes {
		for _, o := range d.Outcomes {
			out = append(out, short[o.Column]+" "+fit(oneLine(o.Observed), maxObserved)+o.mark())
		}
		return out
	}
	var order []string
	settings := map[string][]string{}
	for _, o := range d.Outcomes {
		observed := oneLine(o.Observed)
		order = appendNew(order, observed)
		settings[observed] = append(settings[observed], short[o.Column]+o.mark())
	}
	for _, observed := range order {
		out = append(out, fit(observed, maxObserved)+": "+strings.Join(settings[observed], ", "))
	}
	return out
}

func (t *text) findings() {
	labels := labelsOf(t.run)
	single, shared := findings(t.run)
	for _, g := range single {
		t.finding(g.cells[0], labels)
		t.line("")
	}
	for _, g := range shared {
		cells := "1 cell"
		if len(g.cells) > 1 {
			cells = fmt.Sprintf("%d cells", len(g.cells))
		}
		t.headed(g.verdict, fmt.Sprintf("%s: %s: %s", brief(g.reason), cells, g.where(shortLabelsOf(t.run))), "")
		if g.verdict == lab.Error {
			t.verbatim(verdictWidth, "repeat", g.cells[0].Repro)
		}
	}
	if len(shared) > 0 {
		t.line("")
	}
}

const verdictWidth = 7 // columns of "ERROR  "

// headed writes text, in sgr, beside a verdict.
func (t *text) headed(v lab.Verdict, s, sgr string) {
	head := t.verdict(v, pad(strings.ToUpper(string(v)), verdictWidth))
	for _, l := range wrap(s, t.width()-verdictWidth) {
		if sgr != "" {
			l = t.paint(sgr, l)
		}
		t.line(head + l)
		head = pad("", verdictWidth)
	}
}

// finding writes what a person needs to act on a cell that failed or erred.
func (t *text) finding(r lab.Result, labels map[Column]string) {
	t.headed(r.Verdict, fmt.Sprintf("%s on %s, %s", r.Scenario, labels[columnOf(r.Cell)], Seconds(r.DurationMs)), bold)
	off := Deviations(r)
	if r.Verdict == lab.Error || len(off) == 0 {
		t.labeled(2, "reason", r.Reason)
	}
	for _, c := range off {
		what := oneLine(c.What)
		if c.Control {
			what += " (control)"
		}
		for i, l := range wrap(c.Step+" "+what, t.width()-4) {
			t.line(strings.Repeat(" ", 2+2*min(i, 1)) + l)
		}
		if c.Claim != "" {
			t.labeled(4, "claim", claimText(t.run, c.Claim))
		}
		t.labeled(4, "expected", c.Expected)
		t.labeled(4, "observed", c.Observed)
	}
	if folder, names := EvidenceOf(t.run.Dir, r); folder != "" {
		t.verbatim(2, "evidence", folder)
		t.labeled(2, "", list(names, maxFiles, ", "))
	} else {
		t.labeled(2, "evidence", "none was left")
	}
	t.verbatim(2, "repeat", r.Repro)
}
