package bench

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"golang.org/x/perf/benchmath"
)

// Costs prints what the lab itself takes: the floor of its probe, and the API server's share of the largest first sync.
func Costs(w io.Writer, b Book) error {
	for _, m := range b.Machines {
		var names []string
		values := map[string]map[string][]float64{}
		for _, c := range m.Calibrations {
			remember(&names, c.Name)
			if values[c.Name] == nil {
				values[c.Name] = map[string][]float64{}
			}
			values[c.Name][c.Unit] = append(values[c.Name][c.Unit], c.Value)
		}
		if len(names) == 0 {
			continue
		}
		fmt.Fprintf(w, "\nThe lab's own cost on %s\n", m.Kernel)
		out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, name := range names {
			v := values[name]
			if delivered := median(v["ms/delivered"]); !math.IsNaN(delivered) {
				fmt.Fprintf(out, "  %s\tAPI server: %s ms until the last byte, %s %% of the time until the data plane serves\n", name, short(delivered), short(median(v["delivered-%"])))
			}
			if floor := median(v["us/connect-p50"]); !math.IsNaN(floor) {
				fmt.Fprintf(out, "  %s\tfloor of a connection: %s µs, 99th percentile %s µs\n", name, short(floor), short(median(v["us/connect-p99"])))
			}
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// median is NaN of nothing.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(append([]float64(nil), values...), &benchmath.DefaultThresholds), confidence).Center
}
