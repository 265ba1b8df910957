package kubeproxy

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// record is one entry of a kube-proxy's log: klog's text format, "Lmmdd hh:mm:ss.uuuuuu pid file:line] body", or a line
// of something else (a panic, a usage text) with only a body.
type record struct {
	severity byte // 'I', 'W', 'E', 'F', or 0
	when     string
	source   string // "server_linux.go:192"
	body     string // may have several lines
}

var klogHeader = regexp.MustCompile(`^([IWEF])(\d{4} \d{2}:\d{2}:\d{2}\.\d{6}) +\d+ ([^ \]]+:\d+)\] ?(.*)$`)

// parseRecord reads a line that begins a record.
func parseRecord(line string) record {
	if m := klogHeader.FindStringSubmatch(line); m != nil {
		return record{severity: m[1][0], when: m[2], source: m[3], body: m[4]}
	}
	return record{body: line}
}

// parseLog splits a log into records. A value of several lines is written `key=<`, tab-indented lines and ` >`.
func parseLog(log string) []record {
	var records []record
	open := false
	for line := range strings.Lines(log) {
		line = strings.TrimRight(line, "\r\n")
		if open {
			last := &records[len(records)-1]
			last.body += "\n" + line
			open = !strings.HasPrefix(line, " >") || strings.HasSuffix(line, "=<")
			continue
		}
		r := parseRecord(line)
		records = append(records, r)
		open = r.severity != 0 && strings.HasSuffix(line, "=<")
	}
	return records
}

// time is when the record was logged, if the process's zone is UTC. klog writes no year: it is that of the latest moment
// before now's tomorrow.
func (r record) time(now time.Time) (time.Time, bool) {
	now = now.UTC()
	t, err := time.Parse("2006 0102 15:04:05.000000", fmt.Sprintf("%04d %s", now.Year(), r.when))
	if err != nil {
		return time.Time{}, false
	}
	if t.After(now.Add(24 * time.Hour)) {
		t = t.AddDate(-1, 0, 0)
	}
	return t, true
}

// pair is a key and value of a structured record.
type pair struct{ key, value string }

// fields splits a body into its message and its key=value pairs, unquoted. A body that is not structured is all message.
func (r record) fields() (message string, pairs []pair) {
	quoted, err := strconv.QuotedPrefix(r.body)
	if err != nil || quoted[0] != '"' {
		return r.body, nil
	}
	message, _ = strconv.Unquote(quoted)
	for rest := r.body[len(quoted):]; ; {
		rest = strings.TrimLeft(rest, " \n")
		key, after, ok := strings.Cut(rest, "=")
		if !ok {
			return message, pairs
		}
		var value string
		value, rest = cutValue(after)
		pairs = append(pairs, pair{key, value})
	}
}

// cutValue splits a value off the text that begins with it.
func cutValue(s string) (value, rest string) {
	if quoted, err := strconv.QuotedPrefix(s); err == nil {
		value, _ = strconv.Unquote(quoted)
		return value, s[len(quoted):]
	}
	if block, ok := strings.CutPrefix(s, "<\n"); ok {
		block, rest, _ = strings.Cut(block, "\n >")
		var lines []string
		for line := range strings.SplitSeq(block, "\n") {
			lines = append(lines, strings.TrimPrefix(line, "\t"))
		}
		return strings.Join(lines, "\n"), rest
	}
	if end := closing(s); end > 0 { // a list or a mapping may have spaces
		return s[:end], s[end:]
	}
	value, rest, _ = strings.Cut(s, " ")
	return value, rest
}

// closing is the length of the bracketed text that s begins with, 0 if it begins otherwise.
func closing(s string) int {
	depth, text := 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		}
		if depth == 0 {
			if i == 0 {
				return 0
			}
			return i + 1
		}
	}
	return 0
}

// readable is the record as a sentence: "message: error (key=value, ...)".
func (r record) readable() string {
	message, pairs := r.fields()
	var others []string
	reason := ""
	for _, p := range pairs {
		if p.key == "err" {
			reason = p.value
			continue
		}
		others = append(others, p.key+"="+p.value)
	}
	if reason != "" {
		if message == "command failed" { // what every kube-proxy says that ends (k8s.io/component-base/cli)
			message = reason
		} else {
			message += ": " + reason
		}
	}
	if len(others) > 0 {
		message += " (" + strings.Join(others, ", ") + ")"
	}
	return message
}

// ExitReason is the line of a log that says best why the process ended: the error that kube-proxy's command returned, a
// panic, the last error, or the last line of all.
func ExitReason(log string) string {
	var failed, panicked, lastError, last string
	for _, r := range parseLog(log) {
		body := strings.TrimSpace(r.body)
		switch {
		case r.severity == 'E' && strings.HasPrefix(body, `"command failed"`):
			failed = r.readable()
		case r.severity == 'E' || r.severity == 'F':
			lastError = r.readable()
		case r.severity == 0 && panicked == "" && (strings.HasPrefix(body, "panic: ") || strings.HasPrefix(body, "fatal error: ")):
			panicked = body
		}
		if body != "" {
			last = r.readable()
		}
	}
	for _, reason := range []string{failed, panicked, lastError, last} {
		if reason != "" {
			return reason
		}
	}
	return "it logged nothing"
}

// ErrorsIn lists the errors of logs as "file:line] body", each once, in order.
func ErrorsIn(logs ...string) []string {
	seen := map[string]bool{}
	var list []string
	for _, log := range logs {
		for _, r := range parseLog(log) {
			line := r.source + "] " + r.body
			if (r.severity == 'E' || r.severity == 'F') && !seen[line] {
				seen[line] = true
				list = append(list, line)
			}
		}
	}
	return list
}
