package chart

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
)

// Number writes a figure for people, with three digits: "0.0123", "4.56", "12.3k", "1.2M".
func Number(v float64) string {
	a := math.Abs(v)
	switch {
	case v == 0:
		return "0"
	case a >= 1e9:
		return digits(v/1e9) + "G"
	case a >= 1e6:
		return digits(v/1e6) + "M"
	case a >= 1e4:
		return digits(v/1e3) + "k"
	case a >= 1e-4:
		return digits(v)
	}
	return strconv.FormatFloat(v, 'e', 2, 64)
}

// digits writes v with three significant digits and no zeros behind the point.
func digits(v float64) string {
	if a := math.Abs(v); a >= 100 {
		return strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	}
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64)
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// tickLabel is a figure on an axis: "5k", "0.02".
func tickLabel(v float64) string {
	if v >= 1e3 && v < 1e6 {
		return digits(v/1e3) + "k"
	}
	return Number(v)
}

// logRange widens a range of positive values to the next 1, 2 or 5 times a power of ten, so that at least two of them are in it.
func logRange(lo, hi float64) (float64, float64) {
	marks := logMarks(lo/10, hi*10)
	i, _ := slices.BinarySearch(marks, lo*(1+1e-9))
	j, _ := slices.BinarySearch(marks, hi*(1-1e-9))
	i, j = max(i-1, 0), min(j, len(marks)-1)
	if i == j {
		i, j = max(i-1, 0), min(j+1, len(marks)-1)
	}
	return marks[i], marks[j]
}

// logMarks are 1, 2 and 5 times the powers of ten from lo to hi.
func logMarks(lo, hi float64) (marks []float64) {
	for e := int(math.Floor(math.Log10(lo))); e <= int(math.Ceil(math.Log10(hi))); e++ {
		for _, m := range []float64{1, 2, 5} {
			v, _ := strconv.ParseFloat(fmt.Sprintf("%ge%d", m, e), 64)
			if v >= lo*(1-1e-9) && v <= hi*(1+1e-9) {
				marks = append(marks, v)
			}
		}
	}
	return marks
}

const maxLabels = 7 // on a logarithmic axis

// logTicks labels 1, 2 and 5 times the powers of ten, or the powers alone where there are many.
type logTicks struct{}

func (logTicks) Ticks(lo, hi float64) (ticks []plot.Tick) {
	marks := logMarks(lo, hi)
	every := len(marks) <= maxLabels
	for _, v := range marks {
		label := ""
		if e := math.Log10(v); every || math.Abs(e-math.Round(e)) < 1e-9 {
			label = tickLabel(v)
		}
		ticks = append(ticks, plot.Tick{Value: v, Label: label})
	}
	return ticks
}

// linearTicks labels multiples of 1, 2 or 5 times a power of ten.
type linearTicks struct{}

func (linearTicks) Ticks(lo, hi float64) (ticks []plot.Tick) {
	const most = 6
	steps := logMarks((hi-lo)/1000, hi-lo)
	i := slices.IndexFunc(steps, func(step float64) bool { return (hi-lo)/step <= most })
	if i < 0 {
		return nil
	}
	for n := math.Ceil(lo/steps[i] - 1e-9); n*steps[i] <= hi+1e-9*(hi-lo); n++ {
		ticks = append(ticks, plot.Tick{Value: n * steps[i], Label: tickLabel(n * steps[i])})
	}
	return ticks
}

// atValues labels the values that were measured, leaving out labels that would touch.
func atValues(values []float64, span float64) (ticks plot.ConstantTicks) {
	const apart = 0.085 // of the axis
	last := math.Inf(-1)
	for _, v := range values {
		label := tickLabel(v)
		if at := math.Log10(v) / span; at-last < apart {
			label = ""
		} else {
			last = at
		}
		ticks = append(ticks, plot.Tick{Value: v, Label: label})
	}
	return ticks
}
