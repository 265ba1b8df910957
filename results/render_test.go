package results

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
)

func TestTextGolden(t *testing.T) {
	for _, width := range []int{80, 120, 200} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			golden(t, fmt.Sprintf("text-%d.txt", width), func(w io.Writer) error {
				return Text(w, sample(), TextOptions{Width: width})
			})
		})
	}
}

func TestGoldens(t *testing.T) {
	for name, render := range map[string]func(io.Writer, *Run) error{
		"matrix.md":        Markdown,
		"junit.xml":        func(w io.Writer, r *Run) error { return JUnit(w, r) },
		"differences.txt":  func(w io.Writer, r *Run) error { return DifferencesText(w, r, TextOptions{Width: 160}) },
		"ledger.md":        func(w io.Writer, r *Run) error { return LedgerMarkdown(w, r.Claims) },
		"ledger.txt":       func(w io.Writer, r *Run) error { return LedgerText(w, r.Claims, TextOptions{Width: 100}) },
		"matrix-color.txt": func(w io.Writer, r *Run) error { return Text(w, r, TextOptions{Width: 120, Color: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, name, func(w io.Writer) error { return render(w, sample()) })
		})
	}
}

// wide is a run with more settings than any terminal is wide.
func wide() *Run {
	run := &Run{Schema: Schema, Started: start, Finished: start, Cells: []lab.Result{}}
	for _, mode := range lab.Modes() {
		for _, k := range []lab.Kernel{onHost, onDebian11, onDebian12} {
			for _, version := range []string{"1.37.2", "1.35.4"} {
				if mode == lab.IPVS && k == onHost {
					continue
				}
				run.Cells = append(run.Cells, result(cell("clusterip-basics", mode, k, version), lab.Pass, 61_000))
			}
		}
	}
	return run
}

func TestTextWide(t *testing.T) {
	golden(t, "text-wide.txt", func(w io.Writer) error { return Text(w, wide(), TextOptions{Width: 100}) })
}

// Only what is to be copied (a path, a command) may be wider than the terminal.
func TestTextFits(t *testing.T) {
	for _, run := range []*Run{sample(), wide()} {
		for width := 40; width <= 220; width += 7 {
			var b bytes.Buffer
			require.NoError(t, Text(&b, run, TextOptions{Width: width}))
			for line := range strings.Lines(b.String()) {
				if strings.Contains(line, "evidence  ") || strings.Contains(line, "repeat  ") || strings.Contains(line, "median") {
					continue
				}
				assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), width, line)
			}
		}
	}
}

func TestTextOfNothing(t *testing.T) {
	var b bytes.Buffer
	run := &Run{Schema: Schema}
	require.NoError(t, Text(&b, run, TextOptions{}))
	require.NoError(t, Markdown(&b, run))
	require.NoError(t, JUnit(&b, run))
	require.NoError(t, LedgerText(&b, nil, TextOptions{}))
	assert.Contains(t, b.String(), "No cell has a result.")
}

// A tool's whole output as an observation must not bury the rest.
func TestLongObservation(t *testing.T) {
	run := sample()
	run.Cells[4].Checks[1].Observed = strings.Repeat("rule 1\n", 500)
	var text, md bytes.Buffer
	require.NoError(t, Text(&text, run, TextOptions{Width: 100}))
	assert.Less(t, strings.Count(text.String(), "\n"), 80)
	assert.Contains(t, text.String(), "(489 lines more in run.json)")
	require.NoError(t, Markdown(&md, run))
	assert.Less(t, md.Len(), 8000)
}

// What a system under test says must neither drive the terminal nor break Markdown or XML.
func TestHostileText(t *testing.T) {
	run := sample()
	bad := "\x1b[2J\x00a|b`c``<d>&]]>\xff\nnext\tline"
	for i := range run.Cells {
		run.Cells[i].Reason = bad
		for j := range run.Cells[i].Checks {
			c := &run.Cells[i].Checks[j]
			c.OK, c.What, c.Expected, c.Observed = false, bad, bad, bad
		}
	}
	var text, md, junit bytes.Buffer
	require.NoError(t, Text(&text, run, TextOptions{Width: 100}))
	assert.NotContains(t, text.String(), "\x1b")
	require.NoError(t, Markdown(&md, run))
	assert.NotContains(t, md.String(), "\x1b")
	assert.NotContains(t, strings.ReplaceAll(md.String(), "``` ", ""), "<d>&]]\n")
	require.NoError(t, JUnit(&junit, run))
	d := xml.NewDecoder(&junit)
	d.Strict = true
	for {
		_, err := d.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
	}
}

func TestJUnitCounts(t *testing.T) {
	var b bytes.Buffer
	run := sample()
	require.NoError(t, JUnit(&b, run))
	var suites struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
		Skipped  int `xml:"skipped,attr"`
		Suites   []struct {
			Cases []struct {
				Failure *struct{} `xml:"failure"`
				Error   *struct{} `xml:"error"`
				Skipped *struct{} `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	require.NoError(t, xml.Unmarshal(b.Bytes(), &suites))
	var cases, failures, errors, skipped int
	for _, s := range suites.Suites {
		for _, c := range s.Cases {
			cases++
			if c.Failure != nil {
				failures++
			}
			if c.Error != nil {
				errors++
			}
			if c.Skipped != nil {
				skipped++
			}
		}
	}
	n := run.Count()
	assert.Equal(t, []int{len(run.Cells), n.Fail, n.Error, n.Skip}, []int{cases, failures, errors, skipped})
	assert.Equal(t, []int{cases, failures, errors, skipped}, []int{suites.Tests, suites.Failures, suites.Errors, suites.Skipped})
}

func TestWrap(t *testing.T) {
	for _, tt := range []struct {
		in    string
		width int
		want  []string
	}{
		{"", 5, []string{""}},
		{"one two", 7, []string{"one two"}},
		{"one two", 6, []string{"one", "two"}},
		{"6.1.0-39-cloud-amd64", 16, []string{"6.1.0-39-cloud-", "amd64"}},
		{"abcdefgh", 3, []string{"abc", "def", "gh"}},
		{"äöüäöü", 4, []string{"äöüä", "öü"}},
		{"a\nb c", 9, []string{"a", "b c"}},
		{"x", 0, []string{"x"}},
	} {
		assert.Equal(t, tt.want, wrap(tt.in, tt.width), "%q %d", tt.in, tt.width)
	}
}

func TestSeconds(t *testing.T) {
	for ms, want := range map[int64]string{0: "0.0s", 840: "0.8s", 59_949: "59.9s", 59_950: "1m00s", 64_400: "1m04s", 3_600_000: "60m00s"} {
		assert.Equal(t, want, Seconds(ms))
	}
}

func TestUseColor(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	assert.True(t, UseColor(true))
	assert.False(t, UseColor(false))
	t.Setenv("NO_COLOR", "1")
	assert.False(t, UseColor(true))
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "dumb")
	assert.False(t, UseColor(true))
}
