package results

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// maxOnly is how many cells without a counterpart are named; JSON has all.
const maxOnly = 6

// Summary is the comparison in a sentence.
func (c *Comparison) Summary() string {
	var parts []string
	if c.Cells > 0 {
		parts = append(parts, fmt.Sprintf("%d cells compared, %d verdicts and %d checks changed", c.Cells, len(c.Verdicts), len(c.Checks)))
	}
	if c.FiguresCompared > 0 {
		parts = append(parts, fmt.Sprintf("%d figures compared, %d changed beyond noise", c.FiguresCompared, len(c.Figures)))
	}
	switch c.Regressions {
	case 0:
		parts = append(parts, "no regression")
	case 1:
		parts = append(parts, "1 regression")
	default:
		parts = append(parts, fmt.Sprintf("%d regressions", c.Regressions))
	}
	return strings.Join(parts, "; ")
}

// Name is the folder of one side with what is known of it.
func (c Compared) Name() string {
	s := c.Dir
	if !c.Started.IsZero() {
		s += " of " + c.Started.Format("2006-01-02 15:04 MST")
	}
	return s
}

// String is "kube-proxy 1.33.13 → 1.37.2 (ipvs / netns)".
func (s Subject) String() string {
	out := fmt.Sprintf("%s %s → %s", s.What, orNone(s.A), orNone(s.B))
	if s.Where != "" {
		out += " (" + list(strings.Split(s.Where, "; "), 2, "; ") + ")"
	}
	return out
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// Sides says what a check was on each side: "refused (rst)", "reachable ✗", "not made".
func (k CheckMoved) Sides() (a, b string) {
	side := func(observed string, ok bool) string {
		if observed == "" {
			return "not made"
		}
		return fit(oneLine(observed), maxObserved) + Outcome{OK: ok}.mark()
	}
	return side(k.A, k.OKA), side(k.B, k.OKB)
}

// Delta is "+23.4 %, p=0.008, n=5".
func (f FigureChange) Delta() string {
	n := strconv.Itoa(f.NA)
	if f.NA != f.NB {
		n += "+" + strconv.Itoa(f.NB)
	}
	change := "from zero"
	if f.A != 0 {
		change = fmt.Sprintf("%+.1f %%", 100*f.Change)
	}
	return fmt.Sprintf("%s, p=%.3f, n=%s", change, f.P, n)
}

// Verdict is "worse" or "better".
func (f FigureChange) Verdict() string {
	if f.Worse {
		return "worse"
	}
	return "better"
}

func figure(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// Text writes a comparison for a terminal.
func (c *Comparison) Text(w io.Writer, o TextOptions) error {
	t := &text{TextOptions: o}
	t.verbatim(0, "A", c.A.Name())
	t.verbatim(0, "B", c.B.Name())
	for i, s := range c.Subjects {
		label := ""
		if i == 0 {
			label = "differ in"
		}
		t.labeled(0, label, s.String())
	}
	t.line("")
	t.comparedVerdicts(c)
	t.comparedChecks(c)
	if len(c.Claims) > 0 {
		t.title("Claims on which they do not agree")
		for _, k := range c.Claims {
			for i, l := range wrap(fmt.Sprintf("%s %s → %s: %s", k.ID, k.A, k.B, oneLine(k.Text)), t.width()-4) {
				t.line(strings.Repeat(" ", 2+2*min(i, 1)) + l)
			}
		}
		t.line("")
	}
	if len(c.Figures) > 0 {
		t.title("Figures that changed beyond noise")
		for _, f := range c.Figures {
			verdict := t.paint(green, f.Verdict())
			if f.Worse {
				verdict = t.paint(bold+";"+red, f.Verdict())
			}
			t.line("  " + f.Name + "  " + f.Unit)
			t.line(fmt.Sprintf("      %s → %s  %s  %s", figure(f.A), figure(f.B), f.Delta(), verdict))
		}
		t.line("")
	}
	t.only("Only in A", c.OnlyA)
	t.only("Only in B", c.OnlyB)
	for _, n := range c.Notes {
		for _, l := range wrap("Note: "+n+".", t.width()) {
			t.line(l)
		}
	}
	t.title(c.Summary())
	_, err := io.WriteString(w, t.b.String())
	return err
}

func (t *text) comparedVerdicts(c *Comparison) {
	if len(c.Verdicts) == 0 {
		return
	}
	t.title("Verdicts that changed")
	for _, v := range c.Verdicts {
		change := fmt.Sprintf("%s → %s", t.verdict(v.A, string(v.A)), t.verdict(v.B, string(v.B)))
		if v.Regression {
			change += t.paint(bold+";"+red, "  regression")
		}
		t.line("  " + v.Scenario + "  " + change)
		t.labeled(6, "on", v.Setting)
		if v.Reason != "" {
			t.labeled(6, "reason", brief(v.Reason))
		}
		t.verbatim(6, "repeat", v.Repro)
	}
	t.line("")
}

func (t *text) comparedChecks(c *Comparison) {
	if len(c.Checks) == 0 {
		return
	}
	t.title("Checks that changed")
	setting := ""
	for _, k := range c.Checks {
		if s := k.Scenario + " on " + k.Setting; s != setting {
			setting = s
			for _, l := range wrap(s, t.width()-2) {
				t.line("  " + l)
			}
		}
		for _, l := range wrap(k.Step+" "+oneLine(k.What), t.width()-4) {
			t.line("    " + l)
		}
		a, b := k.Sides()
		for _, l := range wrap(a+" → "+b, t.width()-8) {
			t.line("        " + t.paint(bold, l))
		}
	}
	t.line("")
}

func (t *text) only(title string, names []string) {
	if len(names) == 0 {
		return
	}
	for _, l := range wrap(title+": "+list(names, maxOnly, ", "), t.width()) {
		t.line(l)
	}
}

// Markdown writes a comparison as GitHub's Markdown.
func (c *Comparison) Markdown(w io.Writer) error {
	m := &markdown{}
	m.printf("# kplab compare: %s\n\n", mdText(c.Summary()))
	m.printf("- A: %s\n- B: %s\n", mdText(c.A.Name()), mdText(c.B.Name()))
	for _, s := range c.Subjects {
		m.printf("- %s\n", mdText(s.String()))
	}
	if len(c.Verdicts) > 0 {
		m.printf("\n## Verdicts that changed\n\n| scenario | setting | A | B | reason |\n|---|---|---|---|---|\n")
		for _, v := range c.Verdicts {
			b := string(v.B)
			if v.Regression {
				b = "**" + b + "**"
			}
			m.printf("| %s | %s | %s | %s | %s |\n", mdText(v.Scenario), mdText(v.Setting), v.A, b, mdText(brief(v.Reason)))
		}
	}
	if len(c.Checks) > 0 {
		m.printf("\n## Checks that changed\n\n| where | setting | what | A | B |\n|---|---|---|---|---|\n")
		for _, k := range c.Checks {
			a, b := k.Sides()
			m.printf("| %s | %s | %s | %s | %s |\n", mdText(k.Step), mdText(k.Setting), mdCode(k.What), mdText(a), mdText(b))
		}
	}
	if len(c.Claims) > 0 {
		m.printf("\n## Claims on which they do not agree\n\n| id | claim | A | B |\n|---|---|---|---|\n")
		for _, k := range c.Claims {
			m.printf("| %s | %s | %s | %s |\n", mdText(k.ID), mdText(k.Text), k.A, k.B)
		}
	}
	if len(c.Figures) > 0 {
		m.printf("\n## Figures that changed beyond noise\n\n| figure | unit | A | B | change | |\n|---|---|--:|--:|---|---|\n")
		for _, f := range c.Figures {
			verdict := f.Verdict()
			if f.Worse {
				verdict = "**" + verdict + "**"
			}
			m.printf("| %s | %s | %s | %s | %s | %s |\n", mdCode(f.Name), mdText(f.Unit), figure(f.A), figure(f.B), f.Delta(), verdict)
		}
	}
	m.printf("\n")
	for _, side := range []struct {
		title string
		names []string
	}{{"Only in A", c.OnlyA}, {"Only in B", c.OnlyB}} {
		if len(side.names) > 0 {
			m.printf("%s: %s\n\n", side.title, mdText(list(side.names, maxOnly, ", ")))
		}
	}
	for _, n := range c.Notes {
		m.printf("Note: %s.\n\n", mdText(n))
	}
	_, err := io.WriteString(w, strings.TrimRight(m.b.String(), "\n")+"\n")
	return err
}
