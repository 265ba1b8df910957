package results

import (
	"fmt"
	"io"
	"strings"

	"kplab/lab"
)

// Markdown writes the content of [Text] and of [DifferencesText] as GitHub's Markdown. Evidence is linked relative to the run's folder.
func Markdown(w io.Writer, run *Run) error {
	m := &markdown{run: run, matrix: NewMatrix(run), labels: labelsOf(run)}
	m.printf("# kplab run %s\n\n%s\n\n", mdText(run.ID), run.Summary())
	m.about()
	m.grid()
	m.repeats()
	m.differences()
	m.findings()
	_, err := io.WriteString(w, strings.TrimRight(m.b.String(), "\n")+"\n")
	return err
}

// markdown is the Markdown of a run in the making.
type markdown struct {
	run    *Run
	matrix *Matrix
	labels map[Column]string
	b      strings.Builder
}

func (m *markdown) printf(format string, args ...any) { fmt.Fprintf(&m.b, format, args...) }

func (m *markdown) about() {
	h := m.run.Host
	m.printf("Started %s on %s, kernel %s, %s, %d cores, by kplab %s as %s.\n\n",
		m.run.Started.Format("2006-01-02 15:04:05 MST"), mdText(h.OS), mdText(h.Kernel), mdText(h.CPU), h.Cores, mdText(h.KPLab), mdText(h.User))
	if m.run.Sabotage != "" {
		m.printf("**Sabotaged on purpose (%s): a cell that passes here is a defect, and what fails is no finding.**\n\n", mdText(m.run.Sabotage))
	}
	if len(m.run.Command) > 0 {
		m.printf("    %s\n\n", shellQuote(m.run.Command))
	}
}

func (m *markdown) grid() {
	if len(m.matrix.Columns) == 0 {
		m.printf("No cell has a result.\n\n")
		return
	}
	m.printf("| scenario |")
	for _, h := range headers(m.matrix.Columns) {
		for i := range h {
			h[i] = mdText(h[i])
		}
		m.printf(" %s |", strings.Join(h, "<br>"))
	}
	m.printf("\n|---|%s\n", strings.Repeat("---|", len(m.matrix.Columns)))
	for _, s := range m.matrix.Scenarios {
		m.printf("| %s |", mdText(s))
		for _, c := range m.matrix.Columns {
			cell := m.matrix.Cell(s, c)
			switch {
			case cell == nil:
				m.printf("  |")
			case cell.Verdict == lab.Fail || cell.Verdict == lab.Error:
				m.printf(" **%s** |", cellText(cell))
			default:
				m.printf(" %s |", cellText(cell))
			}
		}
		m.printf("\n")
	}
	m.printf("\n")
}

func (m *markdown) differences() {
	m.section("What differs between the modes", Caveat(m.matrix.Columns), Differences(m.run))
	m.section("What differs between the substrates", "Each is a finding, or a fault of an env.", SubstrateDifferences(m.run))
	for _, g := range SwitchGrids(m.run) {
		m.switches(g)
	}
	m.section(gapsTitle, gapsCaveat, Gaps(m.run))
}

// section is a table of differences under a title, with a caveat that may be "".
func (m *markdown) section(title, s string, all []Difference) {
	if len(all) == 0 {
		return
	}
	m.printf("## %s\n\n", title)
	if s != "" {
		m.printf("%s\n\n", s)
	}
	m.printf("| where | claim | what |")
	for _, s := range shortLabels(m.matrix.Columns) {
		m.printf(" %s |", mdText(s))
	}
	m.printf("\n|---|---|---|%s\n", strings.Repeat("---|", len(m.matrix.Columns)))
	for _, d := range joinAlike(all) {
		what := mdCode(d.What) + d.note()
		m.printf("| %s | %s | %s |", mdText(d.Where()), mdText(strings.Join(d.Claims, ", ")), what)
		for _, c := range m.matrix.Columns {
			m.printf(" %s |", d.observed(c))
		}
		m.printf("\n")
	}
	m.printf("\n")
}

func (d Difference) observed(c Column) string {
	for _, o := range d.Outcomes {
		if o.Column == c {
			return mdText(fit(oneLine(o.Observed), maxObserved)) + o.mark()
		}
	}
	return ""
}

func (m *markdown) findings() {
	single, shared := findings(m.run)
	titles := map[lab.Verdict]string{lab.Fail: "Failed", lab.Error: "The lab could not tell", lab.Skip: "Skipped"}
	for _, v := range []lab.Verdict{lab.Fail, lab.Error, lab.Skip} {
		titled := false
		title := func() {
			if !titled {
				m.printf("## %s\n\n", titles[v])
			}
			titled = true
		}
		listed := false
		for _, g := range shared {
			if g.verdict == v {
				title()
				listed = true
				m.printf("- %s: %s\n", mdText(brief(g.reason)), mdText(g.where(shortLabelsOf(m.run))))
				if v == lab.Error {
					m.printf("  Repeat: %s\n", mdCode(g.cells[0].Repro))
				}
			}
		}
		if listed {
			m.printf("\n")
		}
		for _, g := range single {
			if g.verdict == v {
				title()
				m.finding(g.cells[0])
			}
		}
	}
}

func (m *markdown) finding(r lab.Result) {
	m.printf("### %s — %s\n\n", mdText(r.Scenario), mdText(m.labels[columnOf(r.Cell)]))
	off := Deviations(r)
	if r.Verdict == lab.Error || len(off) == 0 {
		m.printf("%s\n\n", mdText(r.Reason))
	}
	for _, c := range off {
		control := ""
		if c.Control {
			control = " (control)"
		}
		m.printf("- %s %s%s\n", mdText(c.Step), mdCode(c.What), control)
		if c.Claim != "" {
			m.printf("  - claim: %s\n", mdText(claimText(m.run, c.Claim)))
		}
		m.printf("  - expected: %s\n  - observed: %s\n", mdText(brief(c.Expected)), mdText(brief(c.Observed)))
	}
	if folder, names := EvidenceOf("", r); folder != "" {
		var links []string
		for i, n := range names {
			links = append(links, fmt.Sprintf("[%s](%s)", mdText(n), r.Evidence[i]))
		}
		m.printf("- evidence in [%s](%s): %s\n", mdText(folder), folder, list(links, maxFiles, ", "))
	} else {
		m.printf("- no evidence was left\n")
	}
	m.printf("- repeat: %s\n\n", mdCode(r.Repro))
}

// mdText is s as literal text on one line, in or out of a table.
func mdText(s string) string {
	var b strings.Builder
	for _, r := range oneLine(s) {
		switch r {
		case '<':
			b.WriteString("&lt;")
			continue
		case '&':
			b.WriteString("&amp;")
			continue
		}
		if strings.ContainsRune("\\`*_[]|~", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// mdCode is s as code on one line, in or out of a table.
func mdCode(s string) string {
	s = strings.ReplaceAll(oneLine(s), "|", "\\|")
	if s == "" {
		return ""
	}
	fence := "`"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	if len(fence) > 1 {
		s = " " + s + " "
	}
	return fence + s + fence
}

// CommandLine is a run's command as a shell reads it.
func CommandLine(run *Run) string { return shellQuote(run.Command) }

// shellQuote writes argv so that a shell reads it as it was.
func shellQuote(argv []string) string {
	quoted := make([]string, len(argv))
	for i, a := range argv {
		quoted[i] = a
		if a == "" || strings.ContainsFunc(a, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,@%+", r))
		}) {
			quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return oneLine(strings.Join(quoted, " "))
}
