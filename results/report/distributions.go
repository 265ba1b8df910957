package report

import (
	"fmt"
	"slices"
	"strings"

	"kplab/results/chart"
	"kplab/results/figures"
)

// maxQuantiles is how many points a distribution is drawn with: more would not show, and the page carries them.
const maxQuantiles = 200

// drawnShare is how much of the slowest series the axis has at least; the table says where the largest are.
const drawnShare = 0.99

// drawDistributions makes a plot of the raw samples of each benchmark, with the modes side by side.
func (d *data) drawDistributions(set *figures.Set) error {
	type key struct{ kernel, accelerator, facet, unit string }
	type sampled struct {
		key
		bench  string
		keys   []figures.Key
		path   string
		modes  []string
		values map[string][]float64
	}
	var all []*sampled
	for _, s := range set.Samples {
		bench, keys := figures.ParseName(s.Bench)
		k := key{s.Kernel, s.Accelerator, bench + figures.NameOf(figures.Without(keys, "mode")), s.Unit}
		i := slices.IndexFunc(all, func(o *sampled) bool { return o.key == k })
		if i < 0 {
			i = len(all)
			all = append(all, &sampled{key: k, bench: bench, keys: figures.Without(keys, "mode"), path: figures.KeyOf(keys, "path"), values: map[string][]float64{}})
		}
		all[i].modes = appendNew(all[i].modes, s.Mode)
		all[i].values[s.Mode] = append(all[i].values[s.Mode], s.Value)
	}
	floors := slices.ContainsFunc(all, func(s *sampled) bool { return s.path != floorPath })
	for _, s := range all {
		if s.path == floorPath && floors {
			continue
		}
		setting, ok := settingOfSamples(set, s.kernel, s.accelerator)
		if !ok {
			d.notes = appendNew(d.notes, fmt.Sprintf("%s has figures of several settings, and %s does not say of which its samples are: their distributions are not drawn.", set.Dir, figures.SamplesFile))
			continue
		}
		p := &plot{
			ID: strings.Join([]string{"distribution", s.facet, s.unit}, "-"), Chapter: s.bench, Kind: distributionPlot,
			Setting: setting, Unit: s.unit, Title: strings.TrimSpace(s.bench + " " + variant(s.keys)),
			Head: []string{"mode", "samples", "smallest", "median", "90 %", "99 %", "largest"},
			Note: fmt.Sprintf("Share of samples that are no larger; the axis ends where every series has 99 %% of its samples. Drawn, and given as data, at %d quantiles at most; %s has every sample.", maxQuantiles, figures.SamplesFile),
		}
		slices.SortStableFunc(s.modes, func(a, b string) int { return modeRank(a) - modeRank(b) })
		c := chart.Lines{Title: p.Title, Subtitle: setting.String(), X: s.unit, Y: "share of samples", Distribution: true}
		table := csvTable{}
		table.row("series", s.unit, "share")
		add := func(name string, tone chart.Tone, values []float64) {
			line := chart.Series{Name: name, Tone: tone}
			xs, shares := figures.Quantiles(values, maxQuantiles)
			for i, x := range xs {
				line.Points = append(line.Points, chart.Point{X: x, Y: shares[i], Lo: shares[i], Hi: shares[i]})
				table.row(name, number(x), number(shares[i]))
			}
			c.Series = append(c.Series, line)
			sorted := slices.Sorted(slices.Values(values))
			row := []string{name, count(float64(len(sorted)))}
			c.Until = max(c.Until, sorted[int(drawnShare*float64(len(sorted)-1))])
			for _, q := range []float64{0, 0.5, 0.9, 0.99, 1} {
				row = append(row, chart.Number(sorted[int(q*float64(len(sorted)-1))]))
			}
			p.Rows = append(p.Rows, row)
		}
		for i, mode := range s.modes {
			tone := toneOf(mode)
			if mode == "" {
				tone = chart.Tone(i)
			}
			add(mode, tone, s.values[mode])
		}
		var floor []float64
		for _, o := range all {
			if o.path == floorPath && s.path != floorPath && o.bench == s.bench && o.unit == s.unit && o.kernel == s.kernel && o.accelerator == s.accelerator && sameLoad(o.keys, s.keys) {
				for _, values := range o.values {
					floor = append(floor, values...)
				}
			}
		}
		if len(floor) > 0 {
			add(floorName, chart.Neutral, floor)
		}
		p.csv = table.bytes()
		c.Description = describeDistribution(p)
		var err error
		if p.image, err = c.Draw(); err != nil {
			return err
		}
		d.plots = append(d.plots, p)
	}
	return nil
}

// sameLoad reports whether the floor was measured for as many Services as another path, or for any number.
func sameLoad(floor, other []figures.Key) bool {
	n := figures.KeyOf(floor, "services")
	return n == "" || n == figures.KeyOf(other, "services")
}

func describeDistribution(p *plot) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Distribution of %s, in %s. ", p.Title, p.Unit)
	for _, row := range p.Rows {
		fmt.Fprintf(&b, "%s: median %s, 99 %% within %s. ", row[0], row[3], row[5])
	}
	b.WriteString("The table below has more.")
	return b.String()
}

// settingOfSamples is the setting that samples were measured on: that of their kernel where they name it, else the folder's only one.
func settingOfSamples(set *figures.Set, kernel, accelerator string) (found figures.Setting, ok bool) {
	for _, l := range set.Lines {
		s := l.Setting()
		if kernel != "" && (s.Get("kernel") != kernel || accelerator != "" && s.Get("accelerator") != accelerator) {
			continue
		}
		if ok && s.String() != found.String() {
			return nil, false
		}
		found, ok = s, true
	}
	return found, ok
}
