package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"kplab/results"
)

// maxMarkdown is how many bytes report.md has at most: a comment on GitHub takes 65,536 characters.
const maxMarkdown = 60_000

// markdown writes the report for a comment on a pull request: the verdict and the link to the page first, then the runs, the figures
// and what is contradicted. What does not fit is left out at the end of its chapter, and the chapter says so.
func (d *data) markdown(w io.Writer) error {
	page := pageFile
	if d.URL != "" {
		page = d.URL
	}
	var head bytes.Buffer
	fmt.Fprintf(&head, "# %s\n\n%s\n\n", d.title(), d.sentence())
	if s := d.findings(); s != "" {
		fmt.Fprintf(&head, "%s\n\n", s)
	}
	fmt.Fprintf(&head, "%s. The whole report: [%s](%s)\n\n", strings.Join(d.lead(), "; "), page, page)
	var chapters []string
	for _, run := range d.runs {
		var b bytes.Buffer
		if err := results.Markdown(&b, run); err != nil {
			return err
		}
		chapters = append(chapters, demoted(b.String()))
	}
	if len(d.plots) > 0 {
		chapters = append(chapters, d.figuresMarkdown())
	}
	if len(d.runs) > 0 {
		var claims []results.ClaimResult
		for _, c := range d.book.Results() {
			if c.Verdict != results.Untested {
				claims = append(claims, c)
			}
		}
		var b bytes.Buffer
		if err := results.LedgerMarkdown(&b, claims); err != nil {
			return err
		}
		untested := results.CountClaims(d.book.Results()).Untested
		chapters = append(chapters, demoted(b.String())+fmt.Sprintf("\n%s untested; they are in the whole report.\n", plural(untested, "claim")+verb(untested, " is", " are")))
	}
	text := head.Bytes()
	room := maxMarkdown - len(text)
	for i, c := range chapters {
		// Each chapter may take an equal share of what is left, and what the ones before it did not need.
		c = cut(c, room/(len(chapters)-i), page)
		room -= len(c)
		text = append(text, c...)
	}
	_, err := w.Write(text)
	return err
}

// demoted is a document as a chapter of another: its headings a level lower.
func demoted(s string) string {
	lines := strings.SplitAfter(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "#") {
			lines[i] = "#" + l
		}
	}
	return strings.Join(lines, "") + "\n"
}

// cut shortens a chapter to at most room bytes, at the end of a line, and says how much is missing and where it is.
func cut(s string, room int, page string) string {
	if len(s) <= room {
		return s
	}
	const about = 200 // bytes of the note
	lines := strings.SplitAfter(s, "\n")
	size, n := 0, 0
	for n < len(lines) && size+len(lines[n]) <= room-about-len(page) {
		size += len(lines[n])
		n++
	}
	note := fmt.Sprintf("\n**Cut here: %s more in [the whole report](%s).**\n\n", plural(len(lines)-n, "line"), page)
	return strings.Join(lines[:n], "") + note
}

// figuresMarkdown are the tables of the plots.
func (d *data) figuresMarkdown() string {
	var b strings.Builder
	b.WriteString("## Figures\n\n")
	for _, n := range d.notes {
		fmt.Fprintf(&b, "- not measured, or not shown: %s\n", strings.Join(strings.Fields(n), " "))
	}
	b.WriteString("\n")
	for _, g := range d.gaps {
		fmt.Fprintf(&b, "### Changing the mode: longest time without an answer\n\n%s\n\n", g.Setting)
		table(&b, g.Head, g.Rows)
	}
	for _, kind := range []string{mainPlot, otherPlot, distributionPlot} { // of gaps, the grid says it
		for _, p := range d.plots {
			if p.Kind != kind {
				continue
			}
			title := p.Title
			if kind == distributionPlot {
				title = "Distribution of " + title
			}
			fmt.Fprintf(&b, "### %s, %s\n\n%s. %s\n\n", title, p.Unit, p.Setting, p.Note)
			table(&b, p.Head, p.Rows)
		}
	}
	return b.String()
}

func table(b *strings.Builder, head []string, rows [][]string) {
	cells := func(fields []string) {
		for _, f := range fields {
			b.WriteString("| " + strings.ReplaceAll(f, "|", "\\|") + " ")
		}
		b.WriteString("|\n")
	}
	cells(head)
	b.WriteString("|---" + strings.Repeat("|--:", len(head)-1) + "|\n")
	for _, row := range rows {
		cells(row)
	}
	b.WriteString("\n")
}
