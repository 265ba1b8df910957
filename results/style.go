package results

import (
	"fmt"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"kplab/lab"
)

// TextOptions says what the text is drawn on.
type TextOptions struct {
	Width int  // columns; 0 = 100
	Color bool // see [UseColor]
}

const (
	defaultWidth = 100
	minWidth     = 40
)

func (o TextOptions) width() int {
	if o.Width <= 0 {
		return defaultWidth
	}
	return max(o.Width, minWidth)
}

// UseColor reports whether to write colours: on a terminal that is not dumb, unless NO_COLOR is set (no-color.org).
func UseColor(terminal bool) bool {
	return terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// The parameters of ANSI's "select graphic rendition".
const (
	bold    = "1"
	dim     = "2"
	red     = "31"
	green   = "32"
	yellow  = "33"
	magenta = "35"
)

func (o TextOptions) paint(sgr, s string) string {
	if !o.Color || s == "" {
		return s
	}
	return "\x1b[" + sgr + "m" + s + "\x1b[0m"
}

func (o TextOptions) verdict(v lab.Verdict, s string) string {
	switch v {
	case lab.Pass:
		return o.paint(green, s)
	case lab.Fail:
		return o.paint(bold+";"+red, s)
	case lab.Skip:
		return o.paint(yellow, s)
	}
	return o.paint(bold+";"+magenta, s)
}

// Glyph marks a verdict for the eye; the word always stands beside it.
func Glyph(v lab.Verdict) string {
	switch v {
	case lab.Pass:
		return "✓"
	case lab.Fail:
		return "✗"
	case lab.Skip:
		return "–"
	}
	return "!"
}

// Seconds writes a duration for people: "0.8s", "1m04s".
func Seconds(ms int64) string {
	if ms < 59_950 {
		return fmt.Sprintf("%.1fs", float64(ms)/1000)
	}
	s := (ms + 500) / 1000
	return fmt.Sprintf("%dm%02ds", s/60, s%60)
}

// printable replaces what would move a terminal's cursor or change its colours; line breaks stay.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		if r == '\t' {
			return ' '
		}
		return '\uFFFD'
	}, strings.TrimRight(s, "\n"))
}

// oneLine is s as a single printable line.
func oneLine(s string) string { return strings.Join(strings.Fields(printable(s)), " ") }

// maxBrief is how many columns a text may take where it stands among others; run.json has all of it.
const maxBrief = 300

// brief is the beginning of s as a single printable line.
func brief(s string) string { return fit(oneLine(s), maxBrief) }

// fit cuts s to width columns, with an ellipsis where something is missing.
func fit(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	if width < 1 {
		return ""
	}
	return string([]rune(s)[:width-1]) + "…"
}

// pad fills s up to width columns.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

// wrap breaks s into lines of at most width columns, between words where it can and inside a word, after one of "-/.",
// where it must. Line breaks in s stay.
func wrap(s string, width int) []string {
	var lines []string
	for paragraph := range strings.SplitSeq(s, "\n") {
		line := ""
		for _, word := range strings.Fields(paragraph) {
			for word != "" {
				if line != "" && columns(line)+1+columns(word) <= width {
					line += " " + word
					break
				}
				if line != "" {
					lines = append(lines, line)
					line = ""
				}
				if columns(word) <= width {
					line = word
					break
				}
				head := breakWord(word, width)
				lines = append(lines, head)
				word = word[len(head):]
			}
		}
		if line != "" || len(lines) == 0 || strings.TrimSpace(paragraph) == "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// breakWord returns the longest beginning of a word wider than width that fits and ends well.
func breakWord(word string, width int) string {
	head := string([]rune(word)[:max(1, width)])
	if i := strings.LastIndexAny(head, "-/."); i > 0 {
		return head[:i+1]
	}
	return head
}

func columns(s string) int { return utf8.RuneCountInString(s) }

// list joins items and counts those beyond limit: "a, b and 3 more".
func list(items []string, limit int, separator string) string {
	if len(items) <= limit+1 {
		return strings.Join(items, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(items[:limit], separator), len(items)-limit)
}
