package figures

import (
	"errors"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

const confidence = 0.95

// Summary is what repeated measurements of one figure come to.
type Summary struct {
	N      int
	Median float64
	// Lo and Hi are the confidence interval of the median at 95 %. With fewer than six runs there is none; they are then the
	// smallest and the largest value, and Range is set.
	Lo, Hi float64
	Range  bool
}

// Summarize summarises values, of which there must be at least one.
func Summarize(values []float64) Summary {
	sample := benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
	s := benchmath.AssumeNothing.Summary(sample, confidence)
	out := Summary{N: len(values), Median: s.Center, Lo: s.Lo, Hi: s.Hi}
	if math.IsInf(s.Lo, 0) || math.IsInf(s.Hi, 0) || math.IsNaN(s.Lo) || math.IsNaN(s.Hi) {
		out.Range, out.Lo, out.Hi = true, sample.Values[0], sample.Values[len(values)-1]
	}
	return out
}

// Test is whether two samples come from the same distribution.
type Test struct {
	P           float64 // Mann-Whitney U; 0 = exact
	Significant bool    // at 0.05
	// Warning is why it could not have found a difference, nil where it could.
	Warning error
}

// Compare tests whether two sets of values differ, as benchstat does.
func Compare(a, b []float64) Test {
	t := benchmath.DefaultThresholds
	c := benchmath.AssumeNothing.Compare(benchmath.NewSample(slices.Clone(a), &t), benchmath.NewSample(slices.Clone(b), &t))
	return Test{P: c.P, Significant: c.P < c.Alpha, Warning: errors.Join(c.Warnings...)}
}

// Quantiles returns values at evenly spaced ranks, at most n, with the smallest and the largest, each with the share of values that
// are no larger.
func Quantiles(values []float64, n int) (xs, shares []float64) {
	sorted := slices.Sorted(slices.Values(values))
	count := min(n, len(sorted))
	for i := range count {
		rank := i
		if count > 1 {
			rank = i * (len(sorted) - 1) / (count - 1)
		}
		xs = append(xs, sorted[rank])
		shares = append(shares, float64(rank+1)/float64(len(sorted)))
	}
	return xs, shares
}
