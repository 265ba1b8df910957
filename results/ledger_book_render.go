package results

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Text writes the book for a terminal: what is contradicted first, since that is news, then what is confirmed, then what is
// untested and why. Only the paths of evidence may be wider than o.Width.
func (b *Book) Text(w io.Writer, o TextOptions) error {
	t := &text{TextOptions: o}
	idWidth := 2
	for _, row := range b.Claims {
		idWidth = max(idWidth, columns(row.ID))
	}
	for _, v := range []ClaimVerdict{Contradicted, Confirmed, Untested} {
		titled := false
		for _, row := range b.Claims {
			if row.Verdict != v {
				continue
			}
			if !titled {
				t.line(v.paint(o, v.Glyph()+" "+string(v)))
				titled = true
			}
			t.bookRow(row, idWidth)
		}
		if titled {
			t.line("")
		}
	}
	for _, l := range wrap(CountClaims(b.Results()).String(), t.width()) {
		t.title(l)
	}
	_, err := io.WriteString(w, t.b.String())
	return err
}

func (t *text) bookRow(row BookRow, idWidth int) {
	indent := t.sentence(row.ClaimResult, idWidth)
	for _, r := range row.Really {
		t.labeled(indent, "really", r)
	}
	if row.Why != "" {
		t.labeled(indent, "why", row.Why)
	}
	if len(row.Modes) > 0 {
		tested := setting{modes: row.Modes, kernels: row.Kernels, versions: row.KubeProxies, userlands: row.Userlands, substrates: row.Substrates}
		t.labeled(indent, "tested on", tested.String())
	}
	for i, path := range row.Evidence {
		if i == maxEvidence {
			t.verbatim(indent, "", fmt.Sprintf("and %d more", len(row.Evidence)-i))
			break
		}
		label := "evidence"
		if i > 0 {
			label = ""
		}
		t.verbatim(indent, label, path)
	}
}

// maxEvidence is how many folders a claim names; JSON has them all.
const maxEvidence = 2

// Markdown writes the book as GitHub's Markdown, in the order of the catalogue. Evidence, where there is any, is named, not linked: the
// runs' folders need not lie beside it.
func (b *Book) Markdown(w io.Writer) error {
	var s strings.Builder
	fmt.Fprintf(&s, "# Ledger\n\n%s\n\n", CountClaims(b.Results()))
	for _, run := range b.Runs {
		fmt.Fprintf(&s, "- run %s of %s, kplab %s\n", mdText(run.ID), run.Started.Format("2006-01-02 15:04:05 MST"), mdText(run.KPLab))
	}
	if len(b.Runs) > 0 {
		s.WriteString("\n")
	}
	shown := slices.ContainsFunc(b.Claims, func(row BookRow) bool { return len(row.Evidence) > 0 })
	header, rule := "| id | claim | source | verdict | really, or why untested | modes | kernels | kube-proxy |", "|---|---|---|---|---|---|---|---|"
	if shown {
		header, rule = header+" evidence |", rule+"---|"
	}
	s.WriteString(header + "\n" + rule + "\n")
	for _, row := range b.Claims {
		verdict := row.Verdict.Glyph() + " " + string(row.Verdict)
		if row.Verdict == Contradicted {
			verdict = "**" + verdict + "**"
		}
		notes := mdLines(row.Really)
		if row.Why != "" {
			notes = mdText(row.Why)
		}
		evidence := row.Evidence
		if len(evidence) > maxEvidence {
			evidence = append(evidence[:maxEvidence:maxEvidence], fmt.Sprintf("and %d more", len(row.Evidence)-maxEvidence))
		}
		fmt.Fprintf(&s, "| %s | %s | %s | %s | %s | %s | %s | %s |", mdText(row.ID), mdText(row.Text), mdText(row.Source), verdict, notes,
			mdLines(row.Modes), mdLines(row.Kernels), mdLines(row.KubeProxies))
		if shown {
			s.WriteString(" " + mdLines(evidence) + " |")
		}
		s.WriteString("\n")
	}
	_, err := io.WriteString(w, s.String())
	return err
}

// mdLines is a list in one field of a table.
func mdLines(items []string) string { return strings.Join(mdAll(items), "<br>") }

func mdAll(items []string) []string {
	lines := make([]string, len(items))
	for i, item := range items {
		lines[i] = mdText(item)
	}
	return lines
}
