package results

import "kplab/lab"

// Matrix lays the cells of a run out: scenarios down, settings across.
type Matrix struct {
	Scenarios []string // in the order of the plan
	Columns   []Column // by mode, then as the plan has kernels and versions
	cells     map[place]*lab.Result
}

type place struct {
	scenario string
	column   Column
}

// NewMatrix lays out a run.
func NewMatrix(run *Run) *Matrix {
	columns, home := columnsOf(run)
	m := &Matrix{Columns: columns, cells: map[place]*lab.Result{}}
	for i := range run.Cells {
		cell := &run.Cells[i]
		m.Scenarios = appendNew(m.Scenarios, cell.Scenario)
		m.cells[place{cell.Scenario, home[columnOf(cell.Cell)]}] = cell
	}
	return m
}

// Cell returns the cell of a scenario in a setting, or nil if the plan had none.
func (m *Matrix) Cell(scenario string, c Column) *lab.Result { return m.cells[place{scenario, c}] }

// cellText is a cell in a few columns: "✓ pass 1.2s". What took no time has none.
func cellText(r *lab.Result) string {
	if r == nil {
		return ""
	}
	s := Glyph(r.Verdict) + " " + string(r.Verdict)
	if r.DurationMs > 0 {
		s += " " + Seconds(r.DurationMs)
	}
	return s
}
