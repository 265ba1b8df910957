package report

import (
	_ "embed"
	"html/template"
	"io"

	"kplab/results"
	"kplab/results/chart"
)

//go:embed ledger.html.tmpl
var ledgerText string

// Ledger writes a ledger as a page that stands alone, in the style of the report's. family names the family of a claim by its id.
func Ledger(w io.Writer, b *results.Book, family func(claim string) string) error {
	cells := map[string]link{}
	for _, row := range b.Claims {
		for _, id := range row.ClaimResult.Cells {
			cells[id] = link{Name: id}
		}
	}
	return templates.ExecuteTemplate(w, "ledger", struct {
		*results.Book
		CSS    template.CSS
		Count  results.ClaimCount
		Groups []claimGroup
	}{b, template.CSS(chart.Style(":root") + pageCSS), results.CountClaims(b.Results()), claimGroups(b, family, cells)})
}

// claimGroups groups the claims by verdict, the news first, each with those of the cells that tested it.
func claimGroups(b *results.Book, family func(claim string) string, cells map[string]link) (groups []claimGroup) {
	for _, g := range []claimGroup{
		{Verdict: results.Contradicted, Last: "Really"},
		{Verdict: results.Confirmed, Last: "Tested in"},
		{Verdict: results.Untested, Last: "Why", Folded: true},
	} {
		for _, row := range b.Claims {
			if row.Verdict != g.Verdict {
				continue
			}
			v := claimView{BookRow: row, Family: family(row.ID), Last: g.Last}
			for _, id := range row.ClaimResult.Cells {
				if at, ok := cells[id]; ok {
					v.Cells = append(v.Cells, at)
				}
			}
			g.Rows = append(g.Rows, v)
		}
		if len(g.Rows) > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}
