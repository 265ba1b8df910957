package report

import (
	"encoding/json"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"

	"kplab/lab"
	"kplab/results"
	"kplab/results/figures"
)

// Schema is the version of [Document], which results/schema/report.schema.json describes. The rules are those of [results.Schema].
const Schema = 1

// Document is the content of report.json.
type Document struct {
	Schema   int         `json:"schema"`
	Status   lab.Verdict `json:"status"` // fail if a check deviates, error if the lab could not tell everything, else pass; "" without a run
	Sentence string      `json:"sentence"`
	Findings string      `json:"findings,omitempty"`
	// Runs are as in run.json, by the time they started.
	Runs []*results.Run `json:"runs"`
	// Differences are the observations that differ between settings, in the cells as the latest run saw them.
	Differences []Difference      `json:"differences"`
	Claims      []results.BookRow `json:"claims"`
	Figures     []Figure          `json:"figures"`
	Plots       []Plot            `json:"plots"`
	Notes       []string          `json:"notes"` // what could not be shown, and why
}

// Difference is an observation of a scenario that differs between settings.
type Difference struct {
	Scenario string    `json:"scenario"`
	Steps    []string  `json:"steps"` // file:line
	What     string    `json:"what"`
	Claims   []string  `json:"claims"`
	Control  bool      `json:"control"`
	Outcomes []Outcome `json:"outcomes"`
}

// Outcome is what was observed in one setting.
type Outcome struct {
	Mode        lab.Mode `json:"mode"`
	Kernel      string   `json:"kernel"`
	Release     string   `json:"release"`
	Accelerator string   `json:"accelerator"`
	KubeProxy   string   `json:"kubeProxy"`
	Userland    string   `json:"userland"`
	Substrate   string   `json:"substrate"`
	Expected    string   `json:"expected"`
	Observed    string   `json:"observed"`
	OK          bool     `json:"ok"`
}

// Figure is the runs of one benchmark in one unit, summarised.
type Figure struct {
	Dir    string            `json:"dir"`
	Name   string            `json:"name"` // with its keys: "Sync/event=first/services=1000/mode=nftables"
	Config map[string]string `json:"config"`
	Unit   string            `json:"unit"`
	Values []float64         `json:"values"` // in the order of the runs
	Median float64           `json:"median"`
	Lo     float64           `json:"lo"` // 95 % confidence interval of the median, or the smallest and the largest value
	Hi     float64           `json:"hi"`
	Range  bool              `json:"range"` // Lo and Hi are the smallest and the largest value: there are too few for an interval
}

// Plot is a plot of the page.
type Plot struct {
	Title   string `json:"title"`
	Setting string `json:"setting"`
	Unit    string `json:"unit"`
	SVG     string `json:"svg,omitempty"` // paths relative to the report's folder
	CSV     string `json:"csv"`
}

func (d *data) document() *Document {
	doc := &Document{
		Schema: Schema, Status: d.status(), Sentence: d.sentence(), Findings: d.findings(), Runs: orEmpty(d.runs),
		Differences: []Difference{}, Claims: orEmpty(d.book.Claims), Figures: orEmpty(d.figures()), Plots: []Plot{}, Notes: orEmpty(d.notes),
	}
	if len(d.runs) == 0 {
		doc.Claims = []results.BookRow{}
	}
	for _, diff := range results.Differences(d.latest) {
		v := Difference{Scenario: diff.Scenario, Steps: orEmpty(diff.Steps), What: diff.What, Claims: orEmpty(diff.Claims), Control: diff.Control}
		for _, o := range diff.Outcomes {
			c := o.Column
			v.Outcomes = append(v.Outcomes, Outcome{c.Mode, c.Kernel, c.Release, c.Accelerator, c.KubeProxy, c.Userland, c.Substrate, o.Expected, o.Observed, o.OK})
		}
		doc.Differences = append(doc.Differences, v)
	}
	for _, p := range d.plots {
		v := Plot{Title: p.Title, Setting: p.Setting.String(), Unit: p.Unit, CSV: path.Join(plotsDir, p.ID+".csv")}
		if p.Drawn() {
			v.SVG = path.Join(plotsDir, p.ID+".svg")
		}
		doc.Plots = append(doc.Plots, v)
	}
	return doc
}

// figures summarises every line of every folder.
func (d *data) figures() (all []Figure) {
	for _, set := range d.sets {
		for _, g := range set.Groups() {
			s := figures.Summarize(g.Values)
			all = append(all, Figure{set.Dir, g.Name, g.Config, g.Unit, g.Values, s.Median, s.Lo, s.Hi, s.Range})
		}
	}
	return all
}

func (d *data) json(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(d.document())
}

// cellsCSV is one row a cell.
func (d *data) cellsCSV(w io.Writer) error {
	t := csvTable{}
	t.row("run", "scenario", "mode", "kernel", "release", "accelerator", "kube_proxy", "userland", "substrate", "verdict", "duration_ms", "reason")
	for _, run := range d.runs {
		for _, c := range run.Cells {
			t.row(run.ID, c.Scenario, string(c.Mode), c.Kernel.Name, c.Kernel.Release, c.Kernel.Accelerator, c.KubeProxy, c.Userland.Name, c.Substrate,
				string(c.Verdict), strconv.FormatInt(c.DurationMs, 10), c.Reason)
		}
	}
	_, err := w.Write(t.bytes())
	return err
}

// figuresCSV is one row a figure of a run, with every configuration line as a column.
func (d *data) figuresCSV(w io.Writer) error {
	keys := map[string]bool{}
	for _, set := range d.sets {
		for _, l := range set.Lines {
			for k := range l.Config {
				keys[k] = true
			}
		}
	}
	config := slices.Sorted(maps.Keys(keys))
	t := csvTable{}
	t.row(append([]string{"dir", "bench", "run", "value", "unit"}, config...)...)
	for _, set := range d.sets {
		for _, l := range set.Lines {
			for _, v := range l.Values {
				row := []string{set.Dir, l.Name(), strconv.Itoa(l.Ordinal + 1), number(v.Value), v.Unit}
				for _, k := range config {
					row = append(row, l.Config[k])
				}
				t.row(row...)
			}
		}
	}
	_, err := w.Write(t.bytes())
	return err
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
