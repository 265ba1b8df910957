package report

import (
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"

	"kplab/lab"
	"kplab/results"
	"kplab/results/chart"
)

var (
	//go:embed page.html.tmpl
	pageText string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string
)

// templates are the pages, and what they share. Styles and script are part of each, so that its file stands alone.
var templates = template.Must(template.Must(template.New("page").Funcs(template.FuncMap{
	"join":  strings.Join,
	"glyph": results.Glyph,
	"lower": strings.ToLower,
	"svg":   func(p *plot) template.HTML { return template.HTML(p.image.Inline(p.ID)) }, // made by package chart, which escapes what it is given
	"data": func(p *plot) template.URL {
		return template.URL("data:text/csv;base64," + base64.StdEncoding.EncodeToString(p.csv))
	},
	"breakable":    breakable,
	"seconds":      results.Seconds,
	"switchTitle":  func() string { return results.SwitchTitle },
	"switchCaveat": func() string { return results.SwitchCaveat },
	"memory":       func(bytes int64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) },
}).Parse(ledgerText)).Parse(pageText))

// breakable lets a browser break a long name after its dots, dashes and slashes.
func breakable(s string) template.HTML {
	s = template.HTMLEscapeString(s)
	return template.HTML(strings.NewReplacer("-", "-<wbr>", ".", ".<wbr>", "/", "/<wbr>", "_", "_<wbr>").Replace(s))
}

// pageView is what the page shows.
type pageView struct {
	CSS        template.CSS
	JS         template.JS
	Title      string
	Status     lab.Verdict
	Sentence   string
	Findings   string
	Count      results.Count
	Claims     results.ClaimCount
	Lead       []string // what was run, in short
	Headers    [][]string
	Columns    []results.Column
	Rows       []rowView
	Cells      int
	Filters    []filter
	Attention  []*cellView
	Changes    []changeView
	Modes      []differenceView
	Caveat     string
	Substrates []differenceView
	Switches   []switchView
	Traffic    trafficTable
	Ledger     []claimGroup
	Gaps       []gapGrid
	Chapters   []chapter
	Settings   []settingView
	Runs       []runView
	Notes      []string
	Files      []link
}

// filter is one choice of the filter bar.
type filter struct {
	Name, Label string
	Values      []string
}

type changeView struct {
	Scenario, Setting string
	Lines             []string
}

// differenceView is observations of the same lines of a scenario that differ between settings in the same way.
type differenceView struct {
	Scenario string
	Where    string
	Claims   []string
	Control  bool
	What     []string
	Outcomes []outcomeView
}

// outcomeView is the settings in which they came out alike, and as what.
type outcomeView struct {
	Settings []string
	Observed []string
	OK       bool
}

// claimGroup is the claims of one verdict.
type claimGroup struct {
	Verdict results.ClaimVerdict
	Last    string // the last column's head
	Folded  bool
	Rows    []claimView
}

type claimView struct {
	results.BookRow
	Family, Last string
	Cells        []link
}

// chapter is the plots of one benchmark on one setting, with the note that most of its plots would bear.
type chapter struct {
	Bench, Setting, Note      string
	Main, Others, Shares, Gap []*plot
}

type runView struct {
	*results.Run
	Command  string
	Machines []machineView
}

type machineView struct {
	results.Machine
	Features, Lacks []string
	Tools           []string
}

// settingView is what figures were measured on.
type settingView struct {
	Dir   string
	Lines []string
}

func (d *data) page(w io.Writer) error {
	v := &pageView{
		CSS: template.CSS(chart.Style(":root") + pageCSS), JS: template.JS(pageJS),
		Title: d.title(), Status: d.status(), Sentence: d.sentence(), Findings: d.findings(),
		Count: d.count(), Claims: results.CountClaims(d.book.Results()), Lead: d.lead(),
		Headers: d.layout.Headers, Columns: d.layout.Columns, Rows: d.rows(), Caveat: results.Caveat(d.layout.Columns),
		Gaps: d.gaps, Chapters: d.chapters(), Notes: d.notes, Settings: d.settings(),
	}
	for _, row := range v.Rows {
		for _, f := range row.Fields {
			v.Cells += len(f.Cells)
			for _, c := range f.Cells {
				if c.Open {
					v.Attention = append(v.Attention, c)
				}
			}
		}
	}
	v.Filters = d.filters(v.Rows)
	v.Modes = d.differences(results.Differences(d.latest))
	v.Substrates = d.differences(results.SubstrateDifferences(d.latest))
	v.Switches = d.switches(v.Rows)
	v.Traffic = d.traffic()
	v.Changes = d.changes()
	v.Ledger = d.ledger(v.Rows)
	for _, run := range d.runs {
		v.Runs = append(v.Runs, viewOf(run))
	}
	for _, name := range d.files() {
		v.Files = append(v.Files, link{name, name})
	}
	return templates.ExecuteTemplate(w, "page", v)
}

// files names what lies beside the page.
func (d *data) files() []string {
	names := []string{markdownFile, jsonFile}
	if len(d.runs) > 0 {
		names = append(names, junitFile, cellsFile)
	}
	if len(d.sets) > 0 {
		names = append(names, figuresFile)
	}
	return names
}

func (d *data) title() string {
	if len(d.runs) == 0 {
		return "kube-proxy figures"
	}
	return "kube-proxy modes, tested"
}

// lead says what the report is of: modes, kernels, versions, when.
func (d *data) lead() (parts []string) {
	var modes, kernels, proxies []string
	for _, c := range d.layout.Columns {
		modes = appendNew(modes, string(c.Mode))
		kernels = appendNew(kernels, c.KernelName())
		proxies = appendNew(proxies, c.KubeProxy)
	}
	for _, set := range d.sets {
		for _, l := range set.Lines {
			if m := l.Key("mode"); m != "" {
				modes = appendNew(modes, m)
			}
			if s := l.Setting().Short(); s != "" && !slices.ContainsFunc(kernels, func(k string) bool { return strings.Contains(k, l.Setting().Get("kernel")) }) {
				kernels = append(kernels, s)
			}
			if p := l.Config["kube-proxy"]; p != "" {
				proxies = appendNew(proxies, p)
			}
		}
	}
	slices.SortStableFunc(modes, func(a, b string) int { return modeRank(a) - modeRank(b) })
	for _, p := range []struct {
		what   string
		values []string
	}{{"kube-proxy", proxies}, {"modes", modes}, {"kernels", kernels}} {
		if len(p.values) > 0 {
			parts = append(parts, p.what+" "+strings.Join(p.values, ", "))
		}
	}
	if len(d.runs) > 0 {
		first, last := d.runs[0].Started, d.runs[len(d.runs)-1].Started
		when := first.Format("2 January 2006, 15:04 MST")
		if len(d.runs) > 1 {
			when = fmt.Sprintf("%d runs, %s to %s", len(d.runs), when, last.Format("2 January 2006, 15:04 MST"))
		}
		parts = append(parts, when)
	}
	return parts
}

// filters are the choices that make a difference: those with more than one value.
func (d *data) filters(rows []rowView) (filters []filter) {
	values := map[string][]string{}
	add := func(name, value string) {
		if value != "" {
			values[name] = appendNew(values[name], value)
		}
	}
	for _, c := range d.layout.Columns {
		add("mode", string(c.Mode))
		add("kernel", c.Kernel)
		add("proxy", c.KubeProxy)
		add("substrate", c.Substrate)
	}
	for _, row := range rows {
		for _, f := range row.Families {
			add("family", f)
		}
		for _, f := range row.Fields {
			for _, c := range f.Cells {
				add("verdict", string(c.Cell.Verdict))
			}
		}
	}
	for _, f := range []filter{{"family", "Family", nil}, {"mode", "Mode", nil}, {"kernel", "Kernel", nil}, {"proxy", "kube-proxy", nil}, {"substrate", "Substrate", nil}, {"verdict", "Verdict", nil}} {
		if f.Values = values[f.Name]; len(f.Values) > 1 {
			filters = append(filters, f)
		}
	}
	return filters
}

// differences joins those that a reader takes for one: of the same lines, for the same claims, with the same settings on each side and
// the same first word ("reachable", "refused") in each. What endpoint answered, from which address, may differ between them.
func (d *data) differences(all []results.Difference) (views []differenceView) {
	at := map[string]int{}
	for _, diff := range all {
		v := differenceView{Scenario: diff.Scenario, Where: diff.Where(), Claims: diff.Claims, Control: diff.Control, What: []string{diff.What}}
		for _, o := range diff.Outcomes {
			label, word := d.layout.Labels[d.layout.IndexOf(o.Column)], firstWord(o.Observed)
			i := slices.IndexFunc(v.Outcomes, func(have outcomeView) bool { return firstWord(have.Observed[0]) == word && have.OK == o.OK })
			if i < 0 {
				i = len(v.Outcomes)
				v.Outcomes = append(v.Outcomes, outcomeView{OK: o.OK})
			}
			v.Outcomes[i].Settings = appendNew(v.Outcomes[i].Settings, label)
			v.Outcomes[i].Observed = appendNew(v.Outcomes[i].Observed, limit(o.Observed))
		}
		key := fmt.Sprint(v.Where, v.Claims, v.Control)
		for _, o := range v.Outcomes {
			key += fmt.Sprint(o.Settings, o.OK, firstWord(o.Observed[0]))
		}
		i, ok := at[key]
		if !ok {
			at[key] = len(views)
			views = append(views, v)
			continue
		}
		views[i].What = appendNew(views[i].What, diff.What)
		for j, o := range v.Outcomes {
			for _, observed := range o.Observed {
				views[i].Outcomes[j].Observed = appendNew(views[i].Outcomes[j].Observed, observed)
			}
		}
	}
	return views
}

// firstWord is an outcome without its details; a number is all of its outcome.
func firstWord(s string) string {
	if i := strings.IndexAny(s, " ("); i > 0 && (s[0] < '0' || s[0] > '9') {
		return s[:i]
	}
	return s
}

// changes are the cells whose repeats did not all come out alike.
func (d *data) changes() (views []changeView) {
	for _, run := range d.runs {
		for _, c := range results.Changes(run) {
			v := changeView{Scenario: c.Cell.Scenario, Setting: d.layout.Labels[d.layout.Index(c.Cell.Cell)]}
			if len(c.Verdicts) > 1 {
				v.Lines = append(v.Lines, "verdict: "+outcomes(c.Verdicts))
			}
			for _, k := range c.Checks {
				v.Lines = append(v.Lines, fmt.Sprintf("%s %s: %s", k.Step, k.What, outcomes(k.Outcomes)))
			}
			views = append(views, v)
		}
	}
	return views
}

func outcomes(all []results.RepeatedOutcome) string {
	var parts []string
	for _, o := range all {
		parts = append(parts, fmt.Sprintf("%d × %s", len(o.Repeats), o.Outcome))
	}
	return strings.Join(parts, ", ")
}

// ledger groups the claims, with links to the cells that tested them.
func (d *data) ledger(rows []rowView) []claimGroup {
	if len(d.runs) == 0 {
		return nil
	}
	cells := map[string]link{}
	for _, row := range rows {
		for _, f := range row.Fields {
			for _, c := range f.Cells {
				cells[c.Cell.ID()] = link{c.Cell.Scenario + ", " + d.layout.Labels[c.Column], "#" + c.ID}
			}
		}
	}
	return claimGroups(d.book, d.Family, cells)
}

// chapters sorts the plots by benchmark and setting.
func (d *data) chapters() (all []chapter) {
	for _, p := range d.plots {
		setting := p.Setting.String()
		i := slices.IndexFunc(all, func(c chapter) bool { return c.Bench == p.Chapter && c.Setting == setting })
		if i < 0 {
			i = len(all)
			all = append(all, chapter{Bench: p.Chapter, Setting: setting})
		}
		c := &all[i]
		if p.Kind == mainPlot || p.Kind == otherPlot {
			if c.Note == "" {
				c.Note = p.Note
			}
			p.noted = p.Note == c.Note
		}
		switch p.Kind {
		case mainPlot:
			c.Main = append(c.Main, p)
		case otherPlot:
			c.Others = append(c.Others, p)
		case distributionPlot:
			c.Shares = append(c.Shares, p)
		case gapPlot:
			c.Gap = append(c.Gap, p)
		}
	}
	return all
}

func viewOf(run *results.Run) runView {
	v := runView{Run: run, Command: results.CommandLine(run)}
	for _, m := range run.Machines {
		mv := machineView{Machine: m}
		for _, name := range slices.Sorted(maps.Keys(m.Features)) {
			if m.Features[name] {
				mv.Features = append(mv.Features, name)
			} else {
				mv.Lacks = append(mv.Lacks, name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(m.Tools)) {
			mv.Tools = append(mv.Tools, name+" "+m.Tools[name])
		}
		v.Machines = append(v.Machines, mv)
	}
	return v
}

// settings are the configuration lines of the figures' folders.
func (d *data) settings() (views []settingView) {
	for _, set := range d.sets {
		v := settingView{Dir: set.Dir}
		for _, l := range set.Lines {
			var words []string
			for _, k := range slices.Sorted(maps.Keys(l.Config)) {
				words = append(words, k+": "+l.Config[k])
			}
			v.Lines = appendNew(v.Lines, strings.Join(words, "; "))
		}
		views = append(views, v)
	}
	return views
}
