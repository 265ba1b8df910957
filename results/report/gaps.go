package report

import (
	"fmt"
	"slices"
	"strings"

	"kplab/results/chart"
	"kplab/results/figures"
)

// gapGrid is how long clients were cut off, by change of mode and number of Services.
type gapGrid struct {
	Setting figures.Setting
	Head    []string // "change of mode", then the numbers of Services
	Rows    [][]string
}

// watch is what one client saw in one run.
type watch struct {
	run, client string
	gaps        []figures.Gap // by time
}

// served reports whether an attempt was answered.
func served(outcome string) bool {
	word, _, _ := strings.Cut(outcome, " ")
	return slices.Contains([]string{"ok", "reachable", "alive", "success"}, word)
}

// longest is the longest time without an answer: from the last that came before to the first that came after, in milliseconds. A
// client that was not answered before is counted from its first attempt. One that was not answered again, such as a connection that was
// reset, is counted to its last attempt and is lost.
func (w watch) longest() (ms float64, failed int, lost bool) {
	last := w.gaps[0].AtMs
	cut := false
	for i, g := range w.gaps {
		if !served(g.Outcome) {
			failed++
			cut = true
			if i < len(w.gaps)-1 {
				continue
			}
		}
		if cut {
			ms = max(ms, g.AtMs-last)
		}
		last, cut = g.AtMs, false
	}
	return ms, failed, !served(w.gaps[len(w.gaps)-1].Outcome)
}

// drawGaps makes the timelines of the changes of mode, and the grid of their gaps.
func (d *data) drawGaps(set *figures.Set) error {
	if len(set.Gaps) == 0 {
		return nil
	}
	setting, _ := settingOfSamples(set, "", "")
	grid := gapGrid{Setting: setting, Head: []string{"change of mode"}}
	var pairs []string
	var sizes []int
	for _, g := range set.Gaps {
		pairs, sizes = appendNew(pairs, g.Pair), appendNew(sizes, g.Services)
	}
	slices.Sort(sizes)
	for _, n := range sizes {
		grid.Head = append(grid.Head, count(float64(n))+" Services")
	}
	for _, pair := range pairs {
		row := []string{arrow(pair)}
		for _, services := range sizes {
			watches := watchesOf(set.Gaps, pair, services)
			if len(watches) == 0 {
				row = append(row, "")
				continue
			}
			row = append(row, clientsText(watches))
			p, err := gapPlotOf(setting, pair, services, watches)
			if err != nil {
				return err
			}
			d.plots = append(d.plots, p)
		}
		grid.Rows = append(grid.Rows, row)
	}
	d.gaps = append(d.gaps, grid)
	return nil
}

// clientsText is the gap of each client: "clusterip 512 [500, 530] ms, established not answered again in 1 of 3".
func clientsText(watches []watch) string {
	var clients []string
	gaps, lost := map[string][]float64{}, map[string]int{}
	for _, w := range watches {
		ms, _, gone := w.longest()
		clients = appendNew(clients, w.client)
		if gone {
			lost[w.client]++
		} else {
			gaps[w.client] = append(gaps[w.client], ms)
		}
	}
	var parts []string
	for _, c := range clients {
		part := c
		if len(gaps[c]) > 0 {
			part += " " + summaryText(gaps[c]) + " ms"
		}
		if n := lost[c]; n > 0 {
			part += fmt.Sprintf(" not answered again in %d of %d", n, n+len(gaps[c]))
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

func arrow(pair string) string {
	return strings.NewReplacer("->", " → ", "-to-", " → ").Replace(pair)
}

func watchesOf(gaps []figures.Gap, pair string, services int) (all []watch) {
	for _, g := range gaps {
		if g.Pair != pair || g.Services != services {
			continue
		}
		i := slices.IndexFunc(all, func(w watch) bool { return w.run == g.Run && w.client == g.Client })
		if i < 0 {
			i = len(all)
			all = append(all, watch{run: g.Run, client: g.Client})
		}
		all[i].gaps = append(all[i].gaps, g)
	}
	for _, w := range all {
		slices.SortStableFunc(w.gaps, func(a, b figures.Gap) int { return int(max(-1, min(1, 1e6*(a.AtMs-b.AtMs)))) })
	}
	return all
}

func gapPlotOf(setting figures.Setting, pair string, services int, watches []watch) (*plot, error) {
	p := &plot{
		ID: strings.Join([]string{"gap", pair, fmt.Sprint(services)}, "-"), Chapter: "Switch", Kind: gapPlot, Setting: setting, Unit: "ms",
		Title: fmt.Sprintf("Gap of %s with %s Services", arrow(pair), count(float64(services))),
		Head:  []string{"run", "client", "attempts", "not answered", "longest gap, ms"},
		Note:  "Thin: answered. Thick: not. Time begins with the change of mode.",
	}
	t := chart.Timeline{Title: p.Title, Subtitle: setting.String(), X: "ms since the change began"}
	table := csvTable{}
	table.row("pair", "services", "run", "client", "at_ms", "outcome")
	var bad []string
	for _, w := range watches {
		lane := chart.Lane{Name: strings.TrimSpace(w.client + " #" + w.run)}
		for _, g := range w.gaps {
			table.row(g.Pair, fmt.Sprint(g.Services), g.Run, g.Client, number(g.AtMs), g.Outcome)
			if !served(g.Outcome) {
				bad = appendNew(bad, g.Outcome)
			}
			name := g.Outcome
			if served(name) {
				name = "answered"
			}
			if last := len(lane.Spans) - 1; last >= 0 && lane.Spans[last].Outcome == name {
				lane.Spans[last].To = g.AtMs
			} else {
				lane.Spans = append(lane.Spans, chart.Span{From: g.AtMs, To: g.AtMs, Outcome: name})
			}
		}
		t.Lanes = append(t.Lanes, lane)
		ms, failed, lost := w.longest()
		gap := chart.Number(ms)
		if lost {
			gap += ", not answered again"
		}
		p.Rows = append(p.Rows, []string{w.run, w.client, count(float64(len(w.gaps))), count(float64(failed)), gap})
	}
	t.Outcomes = append(t.Outcomes, chart.Outcome{Name: "answered", Tone: chart.Tone(2), Good: true})
	slices.Sort(bad)
	for i, o := range bad {
		t.Outcomes = append(t.Outcomes, chart.Outcome{Name: o, Tone: chart.Tone([]int{3, 1, 5, 0, 4}[i%5])})
	}
	p.csv = table.bytes()
	var b strings.Builder
	fmt.Fprintf(&b, "%s. ", p.Title)
	for _, row := range p.Rows {
		fmt.Fprintf(&b, "Run %s, client %s: %s of %s attempts not answered, longest gap in ms: %s. ", row[0], row[1], row[3], row[2], row[4])
	}
	t.Description = b.String()
	var err error
	p.image, err = t.Draw()
	return p, err
}
