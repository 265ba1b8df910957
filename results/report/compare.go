package report

import (
	_ "embed"
	"html/template"
	"io"

	"kplab/results"
	"kplab/results/chart"
)

//go:embed compare.html.tmpl
var compareText string

var compareTemplate = template.Must(template.New("compare").Funcs(template.FuncMap{
	"glyph": results.Glyph, "breakable": breakable, "number": chart.Number,
}).Parse(compareText))

// Comparison writes a comparison as a page that stands alone, in the style of the report's.
func Comparison(w io.Writer, c *results.Comparison) error {
	type moved struct {
		results.CheckMoved
		SideA, SideB string
	}
	v := struct {
		*results.Comparison
		CSS   template.CSS
		Moved []moved
	}{Comparison: c, CSS: template.CSS(pageCSS)}
	for _, k := range c.Checks {
		a, b := k.Sides()
		v.Moved = append(v.Moved, moved{k, a, b})
	}
	return compareTemplate.Execute(w, v)
}
