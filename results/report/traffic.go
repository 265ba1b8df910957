package report

import (
	"slices"

	"kplab/results"
)

// trafficTable is what steady traffic met while something changed: a row a change and a traffic, a column a setting.
type trafficTable struct {
	Head []string
	Rows []trafficRow
}

type trafficRow struct {
	Scenario, What string
	Fields         []string // beside Head; "" where the setting has none
}

func (d *data) traffic() (t trafficTable) {
	rows := results.Gaps(d.latest)
	var columns []results.Column
	for _, row := range rows {
		for _, o := range row.Outcomes {
			columns = appendNew(columns, o.Column)
		}
	}
	place := func(c results.Column) int { return slices.Index(d.layout.Columns, c) }
	slices.SortStableFunc(columns, func(a, b results.Column) int { return place(a) - place(b) })
	for _, c := range columns {
		head := string(c.Mode)
		if i := place(c); i >= 0 {
			head = d.layout.Labels[i]
		}
		t.Head = append(t.Head, head)
	}
	for _, row := range rows {
		r := trafficRow{Scenario: row.Scenario, What: row.What, Fields: make([]string, len(columns))}
		for _, o := range row.Outcomes {
			r.Fields[slices.Index(columns, o.Column)] = o.Observed
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}
