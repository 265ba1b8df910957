package report

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"kplab/lab"
	"kplab/results"
)

// rowView is a row of the matrix.
type rowView struct {
	Scenario string
	Families []string // of the claims that it bears on
	Claims   []string
	Fields   []fieldView // one for each column
}

// fieldView is a field of the matrix: no cell, one, or one of each of several runs.
type fieldView struct {
	Column int
	Cells  []*cellView
}

// cellView is a cell.
type cellView struct {
	ID       string // of its element
	Cell     lab.Result
	Run      string // which run, where there are several
	Several  bool   // of several runs in one field
	Column   int
	Label    string // "pass 1.2s"
	Glyph    string
	Setting  string   // its column in one line
	Families []string // of its scenario's claims
	Claims   []string
	Open     bool
	Checks   []checkView
	Folder   link   // of its evidence
	Evidence []link // files
	Repeats  string // how its repeats came out, if it has some
}

type checkView struct {
	lab.Check
	Claim *results.BookRow
}

// link is a name, with where it leads if it leads somewhere.
type link struct{ Name, To string }

// maxText is how many bytes of one text the page shows: what was observed may be all that a tool said. run.json has all of it.
const maxText = 3000

func limit(s string) string {
	if len(s) <= maxText {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes more in run.json)", strings.ToValidUTF8(s[:maxText], ""), len(s)-maxText)
}

// rows lays out the matrix, with every run's cell.
func (d *data) rows() (rows []rowView) {
	claims := map[string]*results.BookRow{}
	for i := range d.book.Claims {
		claims[d.book.Claims[i].ID] = &d.book.Claims[i]
	}
	for _, s := range d.layout.Scenarios {
		row := rowView{Scenario: s}
		for i := range d.layout.Columns {
			row.Fields = append(row.Fields, fieldView{Column: i})
		}
		for i, run := range d.runs {
			for _, cell := range run.Cells {
				if cell.Scenario != s {
					continue
				}
				v := d.cellView(i, run, cell, claims)
				row.Fields[v.Column].Cells = append(row.Fields[v.Column].Cells, v)
				for _, k := range cell.Checks {
					if k.Claim != "" {
						row.Claims = appendNew(row.Claims, k.Claim)
					}
				}
			}
		}
		for _, c := range d.book.Claims {
			if slices.Contains(c.Scenarios, s) {
				row.Claims = appendNew(row.Claims, c.ID)
			}
		}
		for _, id := range row.Claims {
			row.Families = appendNew(row.Families, d.Family(id))
		}
		for _, f := range row.Fields {
			for _, c := range f.Cells {
				c.Several = len(f.Cells) > 1
				c.Families, c.Claims = row.Families, row.Claims
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func (d *data) cellView(i int, run *results.Run, cell lab.Result, claims map[string]*results.BookRow) *cellView {
	v := &cellView{
		Cell: cell, Column: d.layout.Index(cell.Cell), Glyph: results.Glyph(cell.Verdict), Label: string(cell.Verdict),
		Open: cell.Verdict == lab.Fail || cell.Verdict == lab.Error,
	}
	v.ID = slug("cell-" + cell.ID())
	if len(d.runs) > 1 {
		v.ID, v.Run = fmt.Sprintf("run%d-%s", i+1, v.ID), run.ID
	}
	v.Setting = strings.Join(d.layout.Headers[v.Column], " / ")
	if cell.DurationMs > 0 {
		v.Label += " " + results.Seconds(cell.DurationMs)
	}
	for _, k := range cell.Checks {
		k.Observed, k.Expected = limit(k.Observed), limit(k.Expected)
		v.Checks = append(v.Checks, checkView{k, claims[k.Claim]})
	}
	if n := len(cell.Repeats); n > 0 {
		var verdicts []string
		for _, r := range cell.Repeats {
			verdicts = append(verdicts, string(r.Verdict))
		}
		v.Repeats = fmt.Sprintf("%d repeats: %s", n, strings.Join(verdicts, ", "))
	}
	folder, names := results.EvidenceOf("", cell)
	if folder == "" {
		return v
	}
	v.Folder = d.evidenceLink(i, run, folder, folder)
	for j, name := range names {
		v.Evidence = append(v.Evidence, d.evidenceLink(i, run, name, cell.Evidence[j]))
	}
	return v
}

// evidenceLink leads to a file or folder of evidence, seen from the page, if it is there.
func (d *data) evidenceLink(i int, run *results.Run, name, at string) link {
	if _, err := os.Stat(filepath.Join(run.Dir, filepath.FromSlash(at))); err != nil {
		return link{Name: name}
	}
	return link{name, path.Join(d.evidence[i], at)}
}
