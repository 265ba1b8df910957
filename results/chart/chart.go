// Package chart draws the figures of the lab as SVG: lines over a number that varies, with their spread; distributions; and
// timelines of what clients saw.
//
// Drawing is gonum.org/v1/plot's. What it lacks is added here: colours that follow the page's light and dark scheme (CSS
// variables --plot-..., with a light value as fallback), a role, a title and a description for screen readers, and a legend outside
// the data. Series are told apart by colour and by the shape of their points.
package chart

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"image/color"
	"regexp"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Image is a drawn chart.
type Image struct {
	Title, Description string
	inline, file       drawing
}

// drawing is what the plot library made.
type drawing struct {
	body   string // SVG from the first group to the end
	height float64
}

// Inline is the image as an element of an HTML page that defines the --plot variables and says what the subtitle says. id must be
// unique in the page.
func (m *Image) Inline(id string) string { return m.element(m.inline, id, "") }

// File is the image as a file of its own, which follows the reader's colour scheme.
func (m *Image) File() []byte {
	return []byte(`<?xml version="1.0" encoding="UTF-8"?>` + "\n" + m.element(m.file, "chart", "<style>"+Style("svg")+"</style>\n"))
}

func (m *Image) element(d drawing, id, style string) string {
	const pixels = 4.0 / 3 // a point
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %g" width="%g" height="%g" role="img" aria-labelledby="%s-title %s-desc">
<title id="%s-title">%s</title>
<desc id="%s-desc">%s</desc>
%s%s`, width, d.height, width*pixels, d.height*pixels, id, id, id, html.EscapeString(m.Title), id, html.EscapeString(m.Description), style, d.body)
}

// ink is a colour with a name: a CSS variable, its value on a light page and on a dark one.
type ink struct {
	name        string
	light, dark string
	mark        color.Color // what the plot library is given, and draws only this ink with
}

var (
	inkText = ink{"text", "#3a3f47", "#c9ced6", marker(1)}
	inkGrid = ink{"grid", "#d9dde3", "#3b424c", marker(2)}
	inkNone = ink{"none", "#6b7280", "#9aa3af", marker(3)}
	// The tones of series. Each has 3:1 contrast or more with the page, and they differ in lightness as well as in hue.
	inkTones = []ink{
		{"a", "#7a3fb8", "#c49bf0", marker(4)},
		{"b", "#b45309", "#f2a65a", marker(5)},
		{"c", "#00707a", "#4cc9d6", marker(6)},
		{"d", "#a3195b", "#f58bb8", marker(7)},
		{"e", "#3f6212", "#a3d65c", marker(8)},
		{"f", "#1d4ed8", "#8db4ff", marker(9)},
	}
)

func inks() []ink { return append([]ink{inkText, inkGrid, inkNone}, inkTones...) }

func marker(n uint8) color.Color { return color.NRGBA{n, 0xfe, n, 0xff} }

// Tone is the colour and the shape of a series: the same for the same thing in every chart.
type Tone int

// Neutral is the tone of what others are held against.
const Neutral Tone = -1

func (t Tone) ink() ink {
	if t < 0 {
		return inkNone
	}
	return inkTones[int(t)%len(inkTones)]
}

func (t Tone) glyph() draw.GlyphDrawer {
	shapes := []draw.GlyphDrawer{draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CircleGlyph{}, draw.PyramidGlyph{}, draw.BoxGlyph{}, draw.RingGlyph{}}
	if t < 0 {
		return draw.CrossGlyph{}
	}
	return shapes[int(t)%len(shapes)]
}

func (t Tone) line() draw.LineStyle {
	s := draw.LineStyle{Color: t.ink().mark, Width: vg.Points(1.5)}
	switch {
	case t < 0:
		s.Dashes = []vg.Length{vg.Points(3), vg.Points(3)}
	case t%3 == 0:
		s.Dashes = []vg.Length{vg.Points(7), vg.Points(2)}
	case t%3 == 1:
		s.Dashes = []vg.Length{vg.Points(4), vg.Points(1.5), vg.Points(1.5), vg.Points(1.5)}
	}
	return s
}

// Style is CSS that defines the --plot variables for a selector, light and dark.
func Style(selector string) string {
	var light, dark strings.Builder
	for _, i := range inks() {
		fmt.Fprintf(&light, "--plot-%s:%s;", i.name, i.light)
		fmt.Fprintf(&dark, "--plot-%s:%s;", i.name, i.dark)
	}
	return fmt.Sprintf("%s{%s}@media screen and (prefers-color-scheme:dark){%s{%s}}", selector, light.String(), selector, dark.String())
}

// Sizes in points, of which the browser makes what fits.
const (
	width      = 360
	plotHeight = 210
	edge       = 4
	titleSize  = 10
	labelSize  = 9
	leading    = 12
)

func face(size vg.Length, bold bool) text.Style {
	f := font.Font{Typeface: plot.DefaultFont.Typeface, Variant: "Sans", Size: size}
	if bold {
		f.Weight = 2 // the library's bold, font.WeightBold of x/image
	}
	return text.Style{Color: inkText.mark, Font: f, Handler: plot.DefaultTextHandler, YAlign: draw.YTop}
}

// entry is a line of a legend.
type entry struct {
	name  string
	thumb func(c *draw.Canvas, at vg.Point) // draws at the left end of the entry's middle
}

const thumbWidth = 22

// render draws a chart, for a page and as a file.
func render(title, subtitle, description string, legend []entry, height vg.Length, paint func(draw.Canvas)) (*Image, error) {
	m := &Image{Title: title, Description: description}
	var err error
	if m.inline, err = compose(title, "", legend, height, paint); err == nil {
		m.file, err = compose(title, subtitle, legend, height, paint)
	}
	if err != nil {
		return nil, fmt.Errorf("draw %q: %w", title, err)
	}
	return m, nil
}

// compose draws a chart: title and subtitle, legend, and below them what paint draws.
func compose(title, subtitle string, legend []entry, height vg.Length, paint func(draw.Canvas)) (drawing, error) {
	head, small := face(titleSize, true), face(labelSize, false)
	titles := lines(head, title, width-2*edge)
	subtitles := lines(small, subtitle, width-2*edge)
	rows := legendRows(small, legend)
	top := vg.Length(edge + leading*(len(titles)+len(subtitles)) + (leading+2)*len(rows) + 4)
	height += top
	canvas := vgsvg.New(width, height)
	c := draw.New(canvas)
	y := height - edge
	for _, l := range titles {
		c.FillText(head, vg.Point{X: edge, Y: y}, l)
		y -= leading
	}
	for _, l := range subtitles {
		c.FillText(small, vg.Point{X: edge, Y: y}, l)
		y -= leading
	}
	for _, row := range rows {
		x := vg.Length(edge)
		for _, e := range row {
			e.thumb(&c, vg.Point{X: x, Y: y - leading/2 - 1})
			c.FillText(small, vg.Point{X: x + thumbWidth + 3, Y: y - 2}, e.name)
			x += entryWidth(small, e)
		}
		y -= leading + 2
	}
	paint(draw.Crop(c, 2, -2*edge, 2, -top))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return drawing{}, err
	}
	return drawing{themed(b.String()), float64(height)}, nil
}

func entryWidth(s text.Style, e entry) vg.Length { return thumbWidth + 3 + s.Width(e.name) + 12 }

func legendRows(s text.Style, legend []entry) (rows [][]entry) {
	var used vg.Length
	for _, e := range legend {
		w := entryWidth(s, e)
		if len(rows) == 0 || used+w > width-2*edge {
			rows, used = append(rows, nil), 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], e)
		used += w
	}
	return rows
}

// lines breaks s into lines that are no wider than room.
func lines(style text.Style, s string, room vg.Length) (out []string) {
	line := ""
	for word := range strings.FieldsSeq(s) {
		switch {
		case line == "":
			line = word
		case style.Width(line+" "+word) <= room:
			line += " " + word
		default:
			out, line = append(out, line), word
		}
	}
	if line != "" {
		out = append(out, line)
	}
	return out
}

var (
	prelude = regexp.MustCompile(`(?s)^.*?<svg[^>]*>\n`)
	family  = regexp.MustCompile(`font-family:[^;"]*;font-variant:[^;"]*;`)
	// decimals beyond a hundredth of a point are invisible and make half of a file.
	decimals = regexp.MustCompile(`(\.\d\d)\d+`)
)

// themed replaces the markers by CSS variables and the fonts by any that are as wide.
func themed(svg string) string {
	svg = prelude.ReplaceAllString(svg, "")
	svg = family.ReplaceAllString(svg, "font-family:'Liberation Sans',Arial,Helvetica,sans-serif;")
	svg = strings.ReplaceAll(svg, "font-weight:normal;font-style:normal;", "")
	svg = decimals.ReplaceAllString(svg, "$1")
	for _, i := range inks() {
		svg = strings.ReplaceAll(svg, hex(i.mark), fmt.Sprintf("var(--plot-%s,%s)", i.name, i.light))
	}
	return svg
}

// hex is a colour as the library writes it, its rounding included.
func hex(c color.Color) string {
	r, g, b, alpha := c.RGBA()
	a := 255.0 / float64(alpha)
	return fmt.Sprintf("#%02X%02X%02X", int(float64(r)*a), int(float64(g)*a), int(float64(b)*a))
}

// axes is an empty plot in the house's style.
func axes(x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for axis, label := range map[*plot.Axis]string{&p.X: x, &p.Y: y} {
		axis.Label.Text = label
		axis.Label.TextStyle.Font = face(labelSize, false).Font
		axis.Label.TextStyle.Color = inkText.mark
		axis.Tick.Label.Font = face(labelSize, false).Font
		axis.Tick.Label.Color = inkText.mark
		axis.LineStyle = draw.LineStyle{Color: inkNone.mark, Width: vg.Points(0.6)}
		axis.Tick.LineStyle = axis.LineStyle
		axis.Tick.Length = vg.Points(3)
		axis.Padding = 2
	}
	return p
}

// grid draws lines across at the labelled ticks.
type grid struct{ vertical bool }

func (g grid) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	style := draw.LineStyle{Color: inkGrid.mark, Width: vg.Points(0.5)}
	for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		if y := trY(t.Value); t.Label != "" && c.ContainsY(y) {
			c.StrokeLine2(style, c.Min.X, y, c.Max.X, y)
		}
	}
	if !g.vertical {
		return
	}
	for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
		if x := trX(t.Value); t.Label != "" && c.ContainsX(x) {
			c.StrokeLine2(style, x, c.Min.Y, x, c.Max.Y)
		}
	}
}

// sortedUnique returns the values of a list once each, in order.
func sortedUnique[T cmp.Ordered](list []T) []T {
	return slices.Compact(slices.Sorted(slices.Values(list)))
}
