package results

import (
	"slices"

	"kplab/lab"
)

// Layout is the settings and scenarios of several runs side by side: how a page that shows them all lays them out.
type Layout struct {
	Scenarios []string   // in the order of the runs' plans
	Columns   []Column   // in the order of the matrix
	Headers   [][]string // of each column: mode, kernel, kube-proxy, and the userland and substrate where those are worth naming
	Labels    []string   // of each column, in one line and as short as tells it from the others
	home      map[Column]Column
}

// NewLayout lays out runs. A cell whose machine never came up is in the column of its plan, as in [Matrix].
func NewLayout(runs ...*Run) *Layout {
	l := &Layout{}
	for _, run := range runs {
		for _, c := range run.Cells {
			l.Scenarios = appendNew(l.Scenarios, c.Scenario)
		}
	}
	l.Columns, l.home = columnsOf(runs...)
	if len(l.Columns) > 0 {
		l.Headers, l.Labels = headers(l.Columns), shortLabels(l.Columns)
	}
	return l
}

// Index is the place of a cell's setting among the columns.
func (l *Layout) Index(c lab.Cell) int { return slices.Index(l.Columns, l.home[columnOf(c)]) }

// IndexOf is the place of a column, as [Outcome] has it, among the columns.
func (l *Layout) IndexOf(c Column) int { return slices.Index(l.Columns, l.home[c]) }

// Latest is a run of every cell of the runs once, as the last of them to begin saw it: what a reader who looks at several runs
// together takes for the state of things. The rest of it is the last run's.
func Latest(runs ...*Run) *Run {
	latest := &Run{Schema: Schema, Cells: []lab.Result{}}
	at := map[string]int{}
	sorted := slices.SortedStableFunc(slices.Values(runs), func(a, b *Run) int { return a.Started.Compare(b.Started) })
	for _, run := range sorted {
		cells := latest.Cells
		for _, c := range run.Cells {
			key := c.Once().ID() + " " + c.Kernel.Release
			if i, ok := at[key]; ok {
				cells[i] = c
				continue
			}
			at[key] = len(cells)
			cells = append(cells, c)
		}
		copied := *run
		copied.Cells = cells
		latest = &copied
	}
	return latest
}
