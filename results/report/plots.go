package report

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"kplab/lab"
	"kplab/results/chart"
	"kplab/results/figures"
)

// plot is one figure of the page: a picture, the table that it was drawn from, and the data.
type plot struct {
	ID      string // name of its files, unique in the report
	Chapter string // the benchmark: "Sync"
	Kind    string // timePlot, costPlot, distributionPlot or gapPlot
	Title   string
	Setting figures.Setting
	Unit    string
	Note    string // how to read it
	Head    []string
	Rows    [][]string

	noted bool         // the chapter says it
	image *chart.Image // nil where there is nothing to draw a line through
	csv   []byte
}

// The kinds of plots.
const (
	mainPlot         = "main" // what the benchmark is about
	otherPlot        = "other"
	distributionPlot = "distribution"
	gapPlot          = "gap"
)

// measured is a line of bench.txt with the folder that it is from.
type measured struct {
	figures.Line
	set *figures.Set
}

// floorPath is the path of connections that were made before kube-proxy ran: what others are held against, whatever the mode. That to an
// endpoint itself while kube-proxy runs (direct) is no such thing: in iptables mode it is slower than in others.
const (
	floorPath = "floor"
	floorName = "before kube-proxy"
)

// draw makes the plots of every setting: figures of different kernels, accelerators or machines never share an axis.
func (d *data) draw() error {
	type group struct {
		setting figures.Setting
		bench   string
		lines   []measured
	}
	var groups []*group
	for _, set := range d.sets {
		for _, l := range set.Lines {
			setting := l.Setting()
			i := slices.IndexFunc(groups, func(g *group) bool { return g.bench == l.Bench && g.setting.String() == setting.String() })
			if i < 0 {
				i = len(groups)
				groups = append(groups, &group{setting: setting, bench: l.Bench})
			}
			groups[i].lines = append(groups[i].lines, measured{l, set})
		}
	}
	for _, g := range groups {
		if err := d.drawBench(g.setting, g.bench, g.lines); err != nil {
			return err
		}
	}
	for _, set := range d.sets {
		if err := d.drawDistributions(set); err != nil {
			return err
		}
		if err := d.drawGaps(set); err != nil {
			return err
		}
	}
	seen := map[string]int{}
	var settings []string
	for _, p := range d.plots {
		settings = appendNew(settings, p.Setting.String())
	}
	for _, p := range d.plots {
		if len(settings) > 1 {
			p.ID += "-" + p.Setting.Short()
		}
		p.ID = slug(p.ID)
		if seen[p.ID]++; seen[p.ID] > 1 {
			p.ID += fmt.Sprintf("-%d", seen[p.ID])
		}
	}
	return nil
}

// slug is a name for files and for ids of a page.
func slug(s string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(s) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.':
			b.WriteRune(r)
		case r == 'µ':
			b.WriteString("u")
		case !strings.HasSuffix(b.String(), "-"):
			b.WriteString("-")
		}
	}
	return strings.Trim(b.String(), "-.")
}

// drawBench makes a plot of each unit and each variant of one benchmark.
func (d *data) drawBench(setting figures.Setting, bench string, lines []measured) error {
	x, by := varying(lines), seriesKey(lines)
	sets := foldersOf(lines)
	var units, facets []string
	of := map[string][]measured{}
	for _, l := range lines {
		facet := figures.NameOf(figures.Without(l.Keys, x, by))
		if _, ok := of[facet]; !ok {
			facets = append(facets, facet)
		}
		of[facet] = append(of[facet], l)
		for _, v := range l.Values {
			if !slices.Contains(units, v.Unit) {
				units = append(units, v.Unit)
			}
		}
	}
	isFloor := func(facet string) bool { return of[facet][0].Key("path") == floorPath }
	var floor []measured // shown in the plots of the other paths, and by itself only if there are none
	if slices.ContainsFunc(facets, func(f string) bool { return !isFloor(f) }) {
		for _, f := range facets {
			if isFloor(f) {
				floor = append(floor, of[f]...)
			}
		}
		facets = slices.DeleteFunc(facets, isFloor)
	}
	leading := leadingUnits(units)
	for _, unit := range units {
		for _, facet := range facets {
			series := seriesOf(of[facet], x, by, unit, sets)
			if len(series) == 0 {
				continue
			}
			if base := floorOf(floor, x, unit, series); base != nil {
				series = append(series, *base)
			}
			p := &plot{
				ID:      strings.Join([]string{bench, figures.NameOf(figures.Without(of[facet][0].Keys, x, by)), unit}, "-"),
				Chapter: bench, Kind: otherPlot, Setting: setting, Unit: unit,
				Title: strings.TrimSpace(bench + " " + variant(of[facet][0].Keys, x, by)),
			}
			if slices.Contains(leading, unit) {
				p.Kind = mainPlot
			}
			if err := p.lines(x, series); err != nil {
				return err
			}
			d.plots = append(d.plots, p)
		}
	}
	return nil
}

// maxLeading is how many units of a benchmark the page shows first.
const maxLeading = 2

// leadingUnits are the units that a benchmark is about: times and rates, in the order in which it writes them, of quantiles the median.
// The others are what it costs.
func leadingUnits(units []string) (leading []string) {
	for _, unit := range units {
		of, per, ok := strings.Cut(unit, "/")
		isTime := slices.Contains([]string{"ns", "µs", "us", "ms", "s", "sec"}, of)
		isRate := per == "s" || per == "sec"
		if quantile := strings.LastIndex(unit, "-"); quantile >= 0 && (unit[quantile:] == "-mean" || isQuantile(unit[quantile+1:]) && unit[quantile:] != "-p50") {
			continue
		}
		if ok && (isTime || isRate) && len(leading) < maxLeading {
			leading = append(leading, unit)
		}
	}
	return leading
}

// isQuantile reports whether the end of a unit is that of a quantile: "p99".
func isQuantile(s string) bool {
	_, err := strconv.Atoi(strings.TrimPrefix(s, "p"))
	return strings.HasPrefix(s, "p") && err == nil
}

// seriesKey is the key of the name whose values share an axis: the mode, or in a benchmark of changes of mode the client.
func seriesKey(lines []measured) string {
	for _, name := range []string{"mode", "client", "pair"} {
		if slices.ContainsFunc(lines, func(l measured) bool { return l.Key(name) != "" }) {
			return name
		}
	}
	return "mode"
}

// variant says what a benchmark's name says but for some of its keys: "first, endpoints 2".
func variant(keys []figures.Key, without ...string) string {
	var words []string
	for _, k := range figures.Without(keys, append(without, "gomaxprocs")...) {
		if k.Name == "pair" {
			k.Value = arrow(k.Value)
		}
		if _, err := strconv.ParseFloat(k.Value, 64); err == nil {
			words = append(words, k.Name+" "+k.Value)
		} else {
			words = append(words, k.Value)
		}
	}
	return strings.Join(words, ", ")
}

// varying is the numeric key of the name that takes the most values; of equals, Services first. "" where no key is numeric.
func varying(lines []measured) string {
	values := map[string]map[string]bool{}
	for _, l := range lines {
		for _, k := range l.Keys {
			if _, err := strconv.ParseFloat(k.Value, 64); err != nil || k.Name == "" {
				continue
			}
			if values[k.Name] == nil {
				values[k.Name] = map[string]bool{}
			}
			values[k.Name][k.Value] = true
		}
	}
	rank := func(name string) int {
		if i := slices.Index([]string{"services", "endpoints", "rate"}, name); i >= 0 {
			return i
		}
		return 3
	}
	best := ""
	for _, name := range slices.SortedFunc(maps.Keys(values), func(a, b string) int {
		return cmp.Or(rank(a)-rank(b), cmp.Compare(a, b))
	}) {
		if best == "" || len(values[name]) > len(values[best]) {
			best = name
		}
	}
	return best
}

// series is the runs of one mode.
type series struct {
	name string
	tone chart.Tone
	runs []run // in the order in which they were measured
}

type run struct {
	x, value float64
	label    string // of the run in the data: its number, and its folder where there are several
	mode     string
	proxy    string
}

// foldersOf names the folders that lines are from, by their last elements.
func foldersOf(lines []measured) map[*figures.Set]string {
	names, taken := map[*figures.Set]string{}, map[string]int{}
	for _, l := range lines {
		if names[l.set] != "" {
			continue
		}
		name := filepath.Base(filepath.Clean(l.set.Dir))
		if taken[name]++; taken[name] > 1 {
			name += fmt.Sprintf(" #%d", taken[name])
		}
		names[l.set] = name
	}
	return names
}

// seriesOf sorts the runs of one figure into series: by the value of a key, which is the mode in most benchmarks, by kube-proxy's version where there are several, and by folder where
// several folders have the same.
func seriesOf(lines []measured, x, by, unit string, sets map[*figures.Set]string) []series {
	type key struct {
		mode, proxy string
		set         *figures.Set
	}
	of := map[key][]run{}
	var keys []key
	var modes, proxies []string
	for _, l := range lines {
		i := slices.IndexFunc(l.Values, func(v figures.Value) bool { return v.Unit == unit })
		if i < 0 {
			continue
		}
		k := key{l.Key(by), l.Config[figures.KubeProxyKey], l.set}
		if _, ok := of[k]; !ok {
			keys = append(keys, k)
		}
		at, _ := strconv.ParseFloat(l.Key(x), 64)
		label := fmt.Sprint(l.Ordinal + 1)
		if len(sets) > 1 {
			label = sets[l.set] + " " + label
		}
		of[k] = append(of[k], run{at, l.Values[i].Value, label, k.mode, k.proxy})
		modes, proxies = appendNew(modes, k.mode), appendNew(proxies, k.proxy)
	}
	slices.SortStableFunc(keys, func(a, b key) int { return cmp.Compare(modeRank(a.mode), modeRank(b.mode)) })
	var all []series
	for i, k := range keys {
		name := k.mode
		if len(proxies) > 1 && k.proxy != "" {
			name = strings.TrimSpace(name + " " + k.proxy)
		}
		if slices.ContainsFunc(keys, func(o key) bool { return o.set != k.set && o.mode == k.mode && o.proxy == k.proxy }) {
			name = strings.TrimSpace(name + " (" + sets[k.set] + ")")
		}
		if name == "" {
			name = unit
		}
		tone := toneOf(k.mode)
		if len(keys) > len(modes) || by != "mode" || k.mode == "" {
			tone = chart.Tone(i)
		}
		all = append(all, series{name, tone, of[k]})
	}
	return all
}

// floorOf is the series of connections before kube-proxy ran, over the same x as the others: nil where there is none in this unit.
func floorOf(lines []measured, x, unit string, others []series) *series {
	s := series{name: floorName, tone: chart.Neutral}
	var at []float64
	for _, o := range others {
		for _, r := range o.runs {
			at = appendNew(at, r.x)
		}
	}
	for _, l := range lines {
		for _, v := range l.Values {
			if v.Unit != unit {
				continue
			}
			r := run{value: v.Value, label: fmt.Sprint(l.Ordinal + 1), mode: l.Key("mode"), proxy: l.Config[figures.KubeProxyKey]}
			if value := l.Key(x); value != "" {
				r.x, _ = strconv.ParseFloat(value, 64)
				s.runs = append(s.runs, r)
				continue
			}
			for _, r.x = range at {
				s.runs = append(s.runs, r)
			}
		}
	}
	if len(s.runs) == 0 {
		return nil
	}
	return &s
}

// at returns the values of a series at x.
func (s series) at(x float64) (values []float64) {
	for _, r := range s.runs {
		if r.x == x {
			values = append(values, r.value)
		}
	}
	return values
}

// lines fills a plot with medians over x.
func (p *plot) lines(x string, all []series) error {
	var xs []float64
	fewest, most, ranges := 0, 0, false
	table := csvTable{}
	table.row(cmp.Or(x, "x"), "series", "mode", "kube-proxy", "run", p.Unit)
	for _, s := range all {
		for _, r := range s.runs {
			xs = appendNew(xs, r.x)
			table.row(number(r.x), s.name, r.mode, r.proxy, r.label, number(r.value))
		}
	}
	p.csv = table.bytes()
	slices.Sort(xs)
	p.Head = []string{cmp.Or(label(x), " ")}
	c := chart.Lines{Title: p.Title, Subtitle: p.Setting.String(), X: label(x), Y: p.Unit}
	for _, s := range all {
		p.Head = append(p.Head, s.name)
		line := chart.Series{Name: s.name, Tone: s.tone}
		for _, at := range xs {
			values := s.at(at)
			if len(values) == 0 {
				continue
			}
			sum := figures.Summarize(values)
			line.Points = append(line.Points, chart.Point{X: at, Y: sum.Median, Lo: sum.Lo, Hi: sum.Hi})
			ranges = ranges || sum.Range && sum.N > 1
			if s.tone != chart.Neutral {
				if fewest == 0 || sum.N < fewest {
					fewest = sum.N
				}
				most = max(most, sum.N)
			}
		}
		c.Series = append(c.Series, line)
	}
	for _, at := range xs {
		row := []string{count(at)}
		for _, s := range all {
			row = append(row, summaryText(s.at(at)))
		}
		p.Rows = append(p.Rows, row)
	}
	p.Note = spread(fewest, most, ranges)
	if x == "" {
		for i := range p.Rows {
			p.Rows[i][0] = p.Unit
		}
		return nil
	}
	c.Description = p.describe()
	var err error
	p.image, err = c.Draw()
	return err
}

// spread says what the bars and brackets are.
func spread(fewest, most int, ranges bool) string {
	runs := fmt.Sprintf("%d runs", most)
	if fewest != most {
		runs = fmt.Sprintf("%d to %d runs", fewest, most)
	}
	switch {
	case most == 1:
		return "One run each: there is no spread to show."
	case ranges:
		return "Median of " + runs + "; bars and brackets: smallest to largest, since fewer than six runs have no 95 % interval."
	}
	return "Median of " + runs + "; bars and brackets: 95 % confidence interval of the median."
}

// describe is the plot in words, for those who do not see it.
func (p *plot) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, in %s, over %s. ", p.Title, p.Unit, p.Head[0])
	for i, s := range p.Head[1:] {
		fmt.Fprintf(&b, "%s: ", s)
		for j, row := range p.Rows {
			if j > 0 {
				b.WriteString(", ")
			}
			value, _, _ := strings.Cut(row[i+1], " ")
			fmt.Fprintf(&b, "%s at %s", cmp.Or(value, "nothing"), row[0])
		}
		b.WriteString(". ")
	}
	b.WriteString("The table below has the figures.")
	return b.String()
}

// summaryText is "12.3 [11.9, 12.8]", or what can be said of a single run.
func summaryText(values []float64) string {
	if len(values) == 0 {
		return ""
	}
	s := figures.Summarize(values)
	if s.N == 1 || s.Lo == s.Hi {
		return chart.Number(s.Median)
	}
	return fmt.Sprintf("%s [%s, %s]", chart.Number(s.Median), chart.Number(s.Lo), chart.Number(s.Hi))
}

// label is the name of a key on an axis.
func label(key string) string {
	switch key {
	case "services":
		return "Services"
	case "endpoints":
		return "endpoints of each Service"
	case "rate":
		return "changes per second"
	}
	return key
}

// count is a number as a row's head: "5,000".
func count(v float64) string {
	s := strconv.FormatFloat(v, 'f', -1, 64)
	whole, rest, point := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if point {
		return whole + "." + rest
	}
	return whole
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func modeRank(mode string) int {
	if i := slices.Index(lab.Modes(), lab.Mode(mode)); i >= 0 {
		return i
	}
	return len(lab.Modes())
}

// toneOf gives a mode the same colour everywhere.
func toneOf(mode string) chart.Tone { return chart.Tone(modeRank(mode)) }

// csvTable is a CSV file in the making.
type csvTable struct {
	b bytes.Buffer
	w *csv.Writer
}

func (t *csvTable) row(fields ...string) {
	if t.w == nil {
		t.w = csv.NewWriter(&t.b)
	}
	_ = t.w.Write(fields) // a bytes.Buffer takes everything
}

func (t *csvTable) bytes() []byte {
	if t.w != nil {
		t.w.Flush()
	}
	return t.b.Bytes()
}

func appendNew[T comparable](list []T, x T) []T {
	if slices.Contains(list, x) {
		return list
	}
	return append(list, x)
}

// Caption is the note, where the chapter does not say it.
func (p *plot) Caption() string {
	if p.noted {
		return ""
	}
	return p.Note
}

// Drawn reports whether there is a picture.
func (p *plot) Drawn() bool { return p.image != nil }
