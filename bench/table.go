package bench

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"
)

// shown are the units that a table has, by benchmark, in their order; bench.txt has all.
var shown = map[string][]shownUnit{
	"Sync": {
		{unit: "ms/programmed", title: "from the API event to the data plane, ms"},
		{unit: "ms/sync", title: "kube-proxy's own clock: time in syncs (IPv4), ms"},
		{unit: "kube-proxy-cpu-ms", title: "CPU of kube-proxy, ms"},
		{unit: "children-cpu-ms", title: "CPU of the tools that it runs, ms (to 10)"},
		{unit: "execs", title: "tools run"},
		{unit: "peak-bytes", title: "peak memory of kube-proxy, MB", scale: 1e-6},
		{unit: "children-peak-bytes", title: "peak memory of a tool, MB", scale: 1e-6},
		{unit: "rules", title: "rules in the kernel"},
		{unit: "elements", title: "set elements in the kernel"},
	},
	"Connect":    {{unit: "us/connect-p50", title: "SYN to SYN-ACK, median, µs"}, {unit: "us/connect-p99", title: "SYN to SYN-ACK, 99th percentile, µs"}},
	"Throughput": {{unit: "connections/s", title: "new connections a second"}, {unit: "packets/s", title: "packets a second"}},
	"Churn": {
		{unit: "changes/s", title: "endpoint changes a second"},
		{unit: "ms/programmed-p50", title: "from an endpoint's change to the data plane, median, ms"},
		{unit: "ms/programmed-p99", title: "the same, 99th percentile, ms"},
		{unit: "growth", title: "latencies of the second half to those of the first (near 1: kube-proxy keeps up)"},
		{unit: "kube-proxy-cpu-%", title: "CPU of kube-proxy, % of a core"},
		{unit: "children-cpu-%", title: "CPU of the tools that it runs, % of a core"},
		{unit: "ms/drain", title: "from the last change until all is programmed, ms"},
	},
	"ChurnLimit": {
		{unit: "changes/s-kept-up", title: "highest rate of endpoint changes that kube-proxy kept up with, changes a second"},
		{unit: "changes/s-behind", title: "rate at which it fell behind, if one was found, changes a second"},
	},
	"Switch": {{unit: "ms/gap", title: "no connection possible, ms"}, {unit: "attempts-failed", title: "attempts that failed"}},
}

type shownUnit struct {
	unit, title string
	scale       float64
}

// Table prints a benchmark's folder: for each setting and unit the medians with 95 % confidence intervals, the modes side by side, and each
// mode's ratio to the first with the p-value of the Mann-Whitney U test.
func Table(w io.Writer, dir string) error {
	f, err := os.Open(filepath.Join(dir, FiguresFile))
	if err != nil {
		return err
	}
	defer f.Close()
	g := figures{values: map[figureKey][]float64{}}
	for r := benchfmt.NewReader(f, f.Name()); r.Scan(); {
		// Anything else is a unit's description, or the line that a kill has cut.
		if rec, ok := r.Result().(*benchfmt.Result); ok {
			g.add(rec)
		}
	}
	for _, setting := range g.settings {
		if err := g.print(w, setting); err != nil {
			return err
		}
	}
	return nil
}

// figureKey is what is the same in every run.
type figureKey struct{ setting, bench, row, mode, unit string }

type figures struct {
	values                map[figureKey][]float64
	settings, rows, modes []string
	few                   bool // a confidence interval was asked of too few runs
}

func (g *figures) add(r *benchfmt.Result) {
	get := r.GetConfig
	setting := fmt.Sprintf("kernel %s (%s), kube-proxy %s, nft %s, iptables %s, %s", get("kernel"), get("accelerator"), get("kube-proxy"), get("nft"), get("iptables"), get("cpu"))
	bench, row, mode := split(string(r.Name))
	remember(&g.settings, setting)
	remember(&g.rows, row)
	remember(&g.modes, mode)
	for _, v := range r.Values {
		k := figureKey{setting, bench, row, mode, v.Unit}
		g.values[k] = append(g.values[k], v.Value)
	}
}

func remember(known *[]string, s string) {
	if !slices.Contains(*known, s) {
		*known = append(*known, s)
	}
}

// split takes the mode out of a benchmark's name.
func split(name string) (bench, row, mode string) {
	bench, rest, _ := strings.Cut(name, "/")
	var left []string
	for part := range strings.SplitSeq(rest, "/") {
		if m, ok := strings.CutPrefix(part, "mode="); ok {
			mode = m
		} else {
			left = append(left, part)
		}
	}
	return bench, strings.Join(left, " "), mode
}

// benchParts are the key=value parts of a benchmark's name.
func benchParts(name string) map[string]string {
	parts := map[string]string{}
	for part := range strings.SplitSeq(name, "/") {
		if k, v, ok := strings.Cut(part, "="); ok {
			parts[k] = v
		}
	}
	return parts
}

func (g *figures) print(w io.Writer, setting string) error {
	fmt.Fprintf(w, "\n%s\n", setting)
	for _, bench := range []string{"Sync", "Connect", "Throughput", "Churn", "ChurnLimit", "Switch"} {
		for _, u := range shown[bench] {
			if err := g.unit(w, setting, bench, u); err != nil {
				return err
			}
		}
	}
	if g.few {
		fmt.Fprintln(w, "\nIn brackets: the range, where there are too few runs for a 95 % confidence interval (six are enough).")
	}
	return nil
}

// unit prints one table.
func (g *figures) unit(w io.Writer, setting, bench string, u shownUnit) error {
	has := func(row, mode string) []float64 { return g.values[figureKey{setting, bench, row, mode, u.unit}] }
	var rows, modes []string
	for _, row := range g.rows {
		if slices.ContainsFunc(g.modes, func(mode string) bool { return len(has(row, mode)) > 0 }) {
			rows = append(rows, row)
		}
	}
	for _, mode := range g.modes {
		if slices.ContainsFunc(rows, func(row string) bool { return len(has(row, mode)) > 0 }) {
			modes = append(modes, mode)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\n%s: %s\n", bench, u.title)
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(out, "  ")
	for i, mode := range modes {
		fmt.Fprintf(out, "\t%s", mode)
		if i > 0 {
			fmt.Fprintf(out, "\tto %s", modes[0])
		}
	}
	fmt.Fprintln(out)
	for _, row := range rows {
		fmt.Fprintf(out, "  %s", row)
		for i, mode := range modes {
			fmt.Fprintf(out, "\t%s", g.cell(has(row, mode), u.scale))
			if i > 0 {
				fmt.Fprintf(out, "\t%s", ratio(has(row, modes[0]), has(row, mode)))
			}
		}
		fmt.Fprintln(out)
	}
	return out.Flush()
}

const confidence = 0.95

// cell is a median and how far it can be trusted.
func (g *figures) cell(values []float64, scale float64) string {
	if len(values) == 0 {
		return "-"
	}
	if scale == 0 {
		scale = 1
	}
	s := benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
	sum := benchmath.AssumeNothing.Summary(s, confidence)
	text := short(sum.Center * scale)
	lo, hi := s.Values[0], s.Values[len(s.Values)-1]
	switch {
	case lo == hi:
		return text
	case math.IsInf(sum.Lo, 0) || math.IsInf(sum.Hi, 0):
		g.few = true
		return fmt.Sprintf("%s [%s, %s]", text, short(lo*scale), short(hi*scale))
	}
	return text + " " + sum.PctRangeString()
}

// ratio is how many times the first mode's median another's is, and whether that could be chance.
func ratio(base, values []float64) string {
	if len(base) == 0 || len(values) == 0 {
		return ""
	}
	a := benchmath.NewSample(slices.Clone(base), &benchmath.DefaultThresholds)
	b := benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
	before := benchmath.AssumeNothing.Summary(a, confidence).Center
	if before == 0 {
		return ""
	}
	return fmt.Sprintf("%sx (%s)", short(benchmath.AssumeNothing.Summary(b, confidence).Center/before), benchmath.AssumeNothing.Compare(a, b))
}

// short is three significant digits.
func short(v float64) string {
	if v >= 1000 || v <= -1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
