package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wellFormed reads an image as XML and returns the texts that it draws.
func wellFormed(t *testing.T, svg string) (texts []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	in := ""
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		require.NoError(t, err)
		switch e := token.(type) {
		case xml.StartElement:
			in = e.Name.Local
		case xml.EndElement:
			in = ""
		case xml.CharData:
			if in == "text" {
				texts = append(texts, string(e))
			}
		}
	}
}

func syncLines() Lines {
	return Lines{
		Title: "Sync first <&>", Subtitle: "kernel 6.18.5, host", Description: "What it shows.", X: "Services", Y: "ms/sync",
		Series: []Series{
			{"iptables", 1, []Point{{100, 80, 70, 95}, {1000, 800, 750, 900}, {5000, 4000, 3900, 4400}}},
			{"nftables", 2, []Point{{100, 10, 9, 12}, {1000, 100, 90, 110}, {5000, 480, 470, 520}}},
			{"no Service", Neutral, []Point{{100, 5, 5, 5}}},
		},
	}
}

func TestLines(t *testing.T) {
	m, err := syncLines().Draw()
	require.NoError(t, err)
	for _, svg := range []string{m.Inline("a"), string(m.File())} {
		texts := wellFormed(t, svg)
		for _, want := range []string{"Sync first <&>", "iptables", "nftables", "no Service", "Services", "ms/sync", "100", "1k", "5k"} {
			assert.Contains(t, texts, want)
		}
		assert.Contains(t, svg, "<title id=")
		assert.Contains(t, svg, ">What it shows.</desc>")
		assert.Contains(t, svg, `role="img"`)
		assert.Contains(t, svg, "var(--plot-b,")
		assert.NotRegexp(t, regexp.MustCompile(`#[0-9A-F]{6}`), svg, "a colour that follows no scheme: the library writes capitals")
		assert.NotContains(t, svg, "NaN")
	}
	assert.NotContains(t, m.Inline("a"), "kernel 6.18.5", "the page says it")
	assert.Contains(t, string(m.File()), "kernel 6.18.5")
	assert.Contains(t, string(m.File()), "prefers-color-scheme:dark")
}

// Whatever was measured can be drawn: zeros, one value, one place, nothing.
func TestLinesOfAnyValues(t *testing.T) {
	for name, points := range map[string][]Point{
		"one point":  {{1000, 5, 5, 5}},
		"zeros":      {{100, 0, 0, 0}, {1000, 0, 0, 0}},
		"x from 0":   {{0, 1, 1, 1}, {10, 2, 2, 2}},
		"tiny":       {{1, 1e-9, 1e-9, 1e-9}, {2, 2e-9, 1e-9, 3e-9}},
		"huge":       {{1, 1e12, 1e12, 1e12}, {1e6, 3e14, 1e14, 5e14}},
		"all alike":  {{1, 7, 7, 7}, {10, 7, 7, 7}},
		"no points":  nil,
		"many sizes": {{100, 1, 1, 1}, {110, 1, 1, 1}, {120, 1, 1, 1}, {130, 1, 1, 1}, {30000, 1, 1, 1}},
	} {
		for _, distribution := range []bool{false, true} {
			l := Lines{Title: name, X: "x", Y: "y", Series: []Series{{"s", 0, points}}, Distribution: distribution}
			m, err := l.Draw()
			require.NoError(t, err, name)
			svg := m.Inline("a")
			wellFormed(t, svg)
			assert.NotContains(t, svg, "NaN", name)
			assert.NotContains(t, svg, "Inf", name)
		}
	}
}

// A few far values do not squeeze the others, nor are they drawn beyond the plot.
func TestLinesUntil(t *testing.T) {
	l := Lines{X: "ms", Distribution: true, Until: 30, Series: []Series{{"s", 0, []Point{{10, 0.5, 0.5, 0.5}, {20, 0.99, 0.99, 0.99}, {1e6, 1, 1, 1}}}}}
	m, err := l.Draw()
	require.NoError(t, err)
	texts := wellFormed(t, m.Inline("a"))
	assert.Contains(t, texts, "20")
	assert.NotContains(t, texts, "1M")
	for _, x := range regexp.MustCompile(`[ML](\d+\.?\d*),`).FindAllStringSubmatch(m.Inline("a"), -1) {
		at, err := strconv.ParseFloat(x[1], 64)
		require.NoError(t, err)
		assert.LessOrEqual(t, at, float64(width))
	}
}

func TestTimeline(t *testing.T) {
	m, err := Timeline{
		Title: "Gap", Description: "d", X: "ms",
		Lanes:    []Lane{{"c1 #0", []Span{{-200, 300, "answered"}, {310, 310, "refused"}, {320, 1990, "answered"}}}, {"ext #0", []Span{{-200, 1990, "answered"}}}},
		Outcomes: []Outcome{{"answered", 2, true}, {"refused", 3, false}},
	}.Draw()
	require.NoError(t, err)
	texts := wellFormed(t, m.Inline("a"))
	for _, want := range []string{"Gap", "answered", "refused", "c1 #0", "ext #0", "0", "500"} {
		assert.Contains(t, texts, want)
	}
	_, err = Timeline{Title: "of nothing"}.Draw()
	assert.NoError(t, err)
}

func TestNumber(t *testing.T) {
	for want, v := range map[string]float64{
		"0": 0, "0.0123": 0.01234, "0.5": 0.5, "1": 1, "4.57": 4.567, "45.7": 45.67, "457": 456.7, "4567": 4567, "12.3k": 12345, "120k": 120000,
		"1.23M": 1234567, "-3.5": -3.5, "1.00e-05": 1e-5, "2G": 2e9,
	} {
		assert.Equal(t, want, Number(v))
	}
}

func TestLogRange(t *testing.T) {
	for _, tc := range []struct{ lo, hi, wantLo, wantHi float64 }{
		{10, 100, 10, 100},
		{19.8, 28, 10, 50},
		{7, 7, 5, 10},
		{0.9, 1500, 0.5, 2000},
	} {
		lo, hi := logRange(tc.lo, tc.hi)
		assert.InDelta(t, tc.wantLo, lo, 1e-9, "%v", tc)
		assert.InDelta(t, tc.wantHi, hi, 1e-9, "%v", tc)
	}
}
