package report

import (
	"slices"

	"kplab/results"
)

// switchView is the grid of changes of mode of one scenario.
type switchView struct {
	*results.SwitchGrid
	Rows []switchRow
}

type switchRow struct {
	Name   string
	Fields []*switchField // beside the grid's heads, nil where there was no such change
}

type switchField struct {
	*results.Switch
	Mark string
	To   string // the cell's element
}

// switches are the grids of the cells as the latest run saw them.
func (d *data) switches(rows []rowView) (views []switchView) {
	for _, g := range results.SwitchGrids(d.latest) {
		v := switchView{SwitchGrid: g}
		for _, row := range g.Rows {
			r := switchRow{Name: row.Name(), Fields: make([]*switchField, len(row.Cells))}
			for i, s := range row.Cells {
				if s != nil {
					r.Fields[i] = &switchField{Switch: s, Mark: results.Glyph(s.Verdict), To: elementOf(rows, s)}
				}
			}
			v.Rows = append(v.Rows, r)
		}
		views = append(views, v)
	}
	return views
}

// elementOf is where the page shows a cell: of several runs' the last, which is the one that the latest run has.
func elementOf(rows []rowView, s *results.Switch) (id string) {
	at := slices.IndexFunc(rows, func(r rowView) bool { return r.Scenario == s.Scenario })
	if at < 0 {
		return ""
	}
	for _, f := range rows[at].Fields {
		for _, c := range f.Cells {
			if c.Cell.ID() == s.ID() {
				id = c.ID
			}
		}
	}
	return id
}
