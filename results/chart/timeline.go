package chart

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Timeline is what several clients saw over time.
type Timeline struct {
	Title, Subtitle, Description string
	X                            string
	Lanes                        []Lane
	Outcomes                     []Outcome // in the order of the legend
}

// Lane is one client.
type Lane struct {
	Name  string
	Spans []Span
}

// Span is a time in which every attempt had the same outcome. From and To are those of its first and its last attempt.
type Span struct {
	From, To float64
	Outcome  string
}

// Outcome is how an outcome is drawn: what is well is a thin line, what is not a thick one.
type Outcome struct {
	Name string
	Tone Tone
	Good bool
}

const laneHeight = 15

// Draw draws a timeline.
func (t Timeline) Draw() (*Image, error) {
	p := axes(t.X, "")
	first := true
	for _, l := range t.Lanes {
		for _, s := range l.Spans {
			if first {
				p.X.Min, p.X.Max, first = s.From, s.To, false
			}
			p.X.Min, p.X.Max = min(p.X.Min, s.From), max(p.X.Max, s.To)
		}
	}
	if p.X.Min == p.X.Max {
		p.X.Max++
	}
	p.X.Tick.Marker = linearTicks{}
	p.Y.Min, p.Y.Max = -0.5, float64(len(t.Lanes))-0.5
	var ticks plot.ConstantTicks
	for i, l := range t.Lanes {
		ticks = append(ticks, plot.Tick{Value: t.row(i), Label: l.Name})
	}
	p.Y.Tick.Marker = ticks
	p.Y.Tick.Length = 0
	p.Add(lanes{t})
	var legend []entry
	for _, o := range t.Outcomes {
		legend = append(legend, entry{o.Name, func(c *draw.Canvas, at vg.Point) {
			c.StrokeLine2(o.style(), at.X+2, at.Y, at.X+thumbWidth-2, at.Y)
		}})
	}
	return render(t.Title, t.Subtitle, t.Description, legend, vg.Length(40+laneHeight*len(t.Lanes)), p.Draw)
}

// row is where a lane is drawn: the first on top.
func (t Timeline) row(i int) float64 { return float64(len(t.Lanes) - 1 - i) }

func (o Outcome) style() draw.LineStyle {
	w := vg.Points(7)
	if o.Good {
		w = vg.Points(2)
	}
	return draw.LineStyle{Color: o.Tone.ink().mark, Width: w}
}

type lanes struct{ Timeline }

func (t lanes) Plot(c draw.Canvas, p *plot.Plot) {
	grid{vertical: true}.Plot(c, p)
	trX, trY := p.Transforms(&c)
	styles := map[string]draw.LineStyle{}
	for _, o := range t.Outcomes {
		styles[o.Name] = o.style()
	}
	for i, l := range t.Lanes {
		y := trY(t.row(i))
		for _, s := range l.Spans {
			from, to := trX(s.From), trX(s.To)
			if to-from < 1.2 { // one attempt, which must be seen too
				from, to = (from+to)/2-0.6, (from+to)/2+0.6
			}
			c.StrokeLine2(styles[s.Outcome], from, y, to, y)
		}
	}
}
