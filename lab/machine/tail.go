package machine

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// tail keeps the last lines of a log and passes each complete line on. The zero value is ready.
type tail struct {
	// line is called with every complete line without its end, if set.
	line func(string)
	// keep is how many bytes of the past are kept; 0 means 64 KiB.
	keep int

	mu      sync.Mutex
	past    []byte
	partial []byte
}

// Write takes any piece of the log. It never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	keep := t.keep
	if keep == 0 {
		keep = 64 << 10
	}
	t.past = append(t.past, p...)
	if over := len(t.past) - keep; over > 0 {
		t.past = append(t.past[:0], t.past[over:]...)
	}
	var lines []string
	if t.line != nil {
		t.partial = append(t.partial, p...)
		for {
			i := bytes.IndexByte(t.partial, '\n')
			if i < 0 {
				break
			}
			lines = append(lines, strings.TrimRight(string(t.partial[:i]), "\r"))
			t.partial = t.partial[i+1:]
		}
	}
	t.mu.Unlock()
	for _, l := range lines {
		t.line(l)
	}
	return len(p), nil
}

// text returns what is kept.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.past)
}

// last returns up to n of the last lines, trimmed.
func (t *tail) last(n int) string {
	lines := t.lines()
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// around returns up to n lines, the first with words in it a few lines below the top.
func (t *tail) around(words string, n int) string {
	lines := t.lines()
	at := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, words) })
	lines = lines[max(0, at-5):]
	return strings.Join(lines[:min(n, len(lines))], "\n")
}

func (t *tail) lines() []string {
	return strings.Split(strings.TrimSpace(strings.ReplaceAll(t.text(), "\r", "")), "\n")
}
