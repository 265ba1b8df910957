package results

import (
	"fmt"
	"io"
	"strings"
)

// ClaimCount is the number of claims of each verdict.
type ClaimCount struct{ Confirmed, Contradicted, Untested int }

// CountClaims counts the lines of a ledger by verdict.
func CountClaims(claims []ClaimResult) ClaimCount {
	var n ClaimCount
	for _, c := range claims {
		switch c.Verdict {
		case Confirmed:
			n.Confirmed++
		case Contradicted:
			n.Contradicted++
		default:
			n.Untested++
		}
	}
	return n
}

func (n ClaimCount) String() string {
	return fmt.Sprintf("%d claims confirmed, %d contradicted, %d untested", n.Confirmed, n.Contradicted, n.Untested)
}

// LedgerText writes the ledger of a run for a terminal: what is contradicted in full, since that is news, then the ids of what is
// confirmed and of what is untested.
func LedgerText(w io.Writer, claims []ClaimResult, o TextOptions) error {
	t := &text{TextOptions: o}
	idWidth := 2
	for _, c := range claims {
		idWidth = max(idWidth, columns(c.ID))
	}
	ids := map[ClaimVerdict][]string{}
	for _, c := range claims {
		verdict := c.Verdict
		if verdict != Confirmed && verdict != Contradicted {
			verdict = Untested
		}
		if ids[verdict] = append(ids[verdict], c.ID); verdict != Contradicted {
			continue
		}
		if len(ids[verdict]) == 1 {
			t.line(verdict.paint(o, verdict.Glyph()+" "+string(verdict)))
		}
		t.claim(c, idWidth)
	}
	if len(ids[Contradicted]) > 0 {
		t.line("")
	}
	for _, v := range []ClaimVerdict{Confirmed, Untested} {
		if len(ids[v]) == 0 {
			continue
		}
		t.line(v.paint(o, v.Glyph()+" "+string(v)))
		for _, l := range wrap(strings.Join(ids[v], " "), t.width()-2) {
			t.line("  " + l)
		}
		t.line("")
	}
	t.title(CountClaims(claims).String())
	_, err := io.WriteString(w, t.b.String())
	return err
}

func (t *text) claim(c ClaimResult, idWidth int) {
	indent := t.sentence(c, idWidth)
	if c.Note != "" {
		t.labeled(indent, "really", oneLine(c.Note))
	}
	if len(c.Settings) > 0 {
		t.labeled(indent, "tested on", list(c.Settings, maxSettings, "; "))
	}
}

// sentence writes a claim's id, text and source, and returns how far what follows is indented.
func (t *text) sentence(c ClaimResult, idWidth int) int {
	indent := 2 + idWidth + 2
	body := c.Text
	if c.Source != "" {
		body = strings.TrimSpace(body + " (" + c.Source + ")")
	}
	if body == "" {
		body = "(not in the catalogue)"
	}
	for i, l := range wrap(oneLine(body), t.width()-indent) {
		id := ""
		if i == 0 {
			id = c.ID
		}
		t.line("  " + pad(id, idWidth) + "  " + l)
	}
	return indent
}

// LedgerMarkdown writes a ledger as GitHub's Markdown, in the order given.
func LedgerMarkdown(w io.Writer, claims []ClaimResult) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Ledger\n\n%s\n\n", CountClaims(claims))
	b.WriteString("| id | claim | source | verdict | really | tested on |\n|---|---|---|---|---|---|\n")
	for _, c := range claims {
		verdict := c.Verdict.Glyph() + " " + string(c.Verdict)
		if c.Verdict == Contradicted {
			verdict = "**" + verdict + "**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n",
			mdText(c.ID), mdText(c.Text), mdText(c.Source), verdict, mdText(c.Note), list(mdAll(c.Settings), maxSettings, "<br>"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// maxSettings is how many of a claim's settings are named; JSON has them all, and kplab ledger sums them up.
const maxSettings = 6

func (v ClaimVerdict) Glyph() string {
	switch v {
	case Confirmed:
		return "✓"
	case Contradicted:
		return "✗"
	}
	return "–"
}

func (v ClaimVerdict) paint(o TextOptions, s string) string {
	switch v {
	case Confirmed:
		return o.paint(green, s)
	case Contradicted:
		return o.paint(bold+";"+red, s)
	}
	return o.paint(yellow, s)
}
