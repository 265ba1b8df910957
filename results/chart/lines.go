package chart

import (
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Lines is figures over a number that varies, or distributions.
type Lines struct {
	Title, Subtitle, Description string
	X, Y                         string // what the axes show, with units
	Series                       []Series
	// Distribution draws the share of values that are no larger than x, from 0 to 1.
	Distribution bool
	// Until is where the x axis of a distribution ends, 0 for the largest value: a few far values would squeeze all others.
	Until float64
}

// Series is one line.
type Series struct {
	Name   string
	Tone   Tone
	Points []Point // by X
}

// Point is one figure with its spread. Without spread Lo and Hi are Y.
type Point struct{ X, Y, Lo, Hi float64 }

// Draw draws lines. Axes are logarithmic where every value on them is above zero; a share's is linear.
func (l Lines) Draw() (*Image, error) {
	p := axes(l.X, l.Y)
	var xs, ys []float64
	for _, s := range l.Series {
		for _, pt := range s.Points {
			xs = append(xs, pt.X)
			ys = append(ys, pt.Y, pt.Lo, pt.Hi)
		}
	}
	if l.Distribution {
		if l.Until > 0 {
			xs = slices.DeleteFunc(xs, func(x float64) bool { return x > l.Until })
		}
		scale(&p.X, xs)
		p.Y.Min, p.Y.Max = 0, 1
		p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 0.25}, {Value: 0.5, Label: "0.5"}, {Value: 0.75}, {Value: 0.9, Label: "0.9"}, {Value: 1, Label: "1"}}
	} else {
		l.values(&p.X, xs)
		scale(&p.Y, ys)
	}
	p.Add(grid{vertical: l.Distribution})
	var legend []entry
	for i, s := range l.Series {
		curve := curve{Series: s, step: l.Distribution, shift: vg.Length(3 * (float64(i) - float64(len(l.Series)-1)/2))}
		if l.Distribution {
			curve.shift = 0
		}
		p.Add(curve)
		legend = append(legend, entry{s.Name, func(c *draw.Canvas, at vg.Point) {
			end := vg.Point{X: at.X + thumbWidth, Y: at.Y}
			c.StrokeLine2(s.Tone.line(), at.X, at.Y, end.X, end.Y)
			if !l.Distribution {
				c.DrawGlyph(s.Tone.marker(), vg.Point{X: at.X + thumbWidth/2, Y: at.Y})
			}
		}})
	}
	return render(l.Title, l.Subtitle, l.Description, legend, plotHeight, p.Draw)
}

// values makes an axis of the values on it: ticks stand where something was measured.
func (l Lines) values(a *plot.Axis, xs []float64) {
	at := sortedUnique(xs)
	if len(at) == 0 || at[0] <= 0 {
		scale(a, xs)
		return
	}
	lo, hi := at[0], at[len(at)-1]
	margin := math.Pow(hi/lo, 0.06)
	if lo == hi {
		margin = 2
	}
	a.Min, a.Max, a.Scale = lo/margin, hi*margin, plot.LogScale{}
	a.Tick.Marker = atValues(at, math.Log10(a.Max/a.Min))
}

// scale fits an axis to values: logarithmic where it can be, else from zero.
func scale(a *plot.Axis, values []float64) {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		lo, hi = min(lo, v), max(hi, v)
	}
	if len(values) == 0 {
		a.Min, a.Max, a.Tick.Marker = 0, 1, linearTicks{}
		return
	}
	if lo > 0 {
		a.Scale, a.Tick.Marker = plot.LogScale{}, logTicks{}
		a.Min, a.Max = logRange(lo, hi)
		return
	}
	a.Min, a.Max = min(0, lo), max(hi*1.05, lo+1)
	a.Tick.Marker = linearTicks{}
}

func (t Tone) marker() draw.GlyphStyle {
	return draw.GlyphStyle{Color: t.ink().mark, Radius: vg.Points(2.6), Shape: t.glyph()}
}

// curve draws one series. Points of several series at the same place stand side by side, shift apart, so that their spreads can be
// told apart.
type curve struct {
	Series
	step  bool
	shift vg.Length
}

func (s curve) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	var line []vg.Point
	for _, pt := range s.Points {
		at := vg.Point{X: trX(pt.X) + s.shift, Y: trY(pt.Y)}
		if s.step {
			if len(line) == 0 {
				line = append(line, vg.Point{X: at.X, Y: trY(0)})
			}
			line = append(line, vg.Point{X: at.X, Y: line[len(line)-1].Y})
		}
		line = append(line, at)
	}
	c.StrokeLines(s.Tone.line(), c.ClipLinesX(line)...)
	if s.step {
		return
	}
	bar := draw.LineStyle{Color: s.Tone.ink().mark, Width: vg.Points(1)}
	const cap = 2.5
	for _, pt := range s.Points {
		x := trX(pt.X) + s.shift
		if pt.Lo < pt.Hi {
			lo, hi := trY(pt.Lo), trY(pt.Hi)
			c.StrokeLine2(bar, x, lo, x, hi)
			c.StrokeLine2(bar, x-cap, lo, x+cap, lo)
			c.StrokeLine2(bar, x-cap, hi, x+cap, hi)
		}
		c.DrawGlyph(s.Tone.marker(), vg.Point{X: x, Y: trY(pt.Y)})
	}
}
