package script

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"kplab/lab"
)

// observation is what a command saw, for expect to assert.
type observation struct {
	what    string            // "probe ext tcp n1:nodeport/web", the same text in every mode
	outcome string            // "reachable", "17", a tool's output
	got     string            // as printed: "reachable (s1, seen from 10.244.1.20)"; "" = outcome
	attrs   map[string]string // "endpoint": "s1"
}

func (o observation) String() string {
	if o.got != "" {
		return o.got
	}
	return o.outcome
}

// outcomes are the words that expect knows, by who says them.
var outcomes = []string{
	"reachable", "refused", "reset", "unreachable", "timeout", // probe, connect
	"alive", "closed", // exchange
	"answered", "silent", // arp
	"sent",              // inject
	"running", "exited", // kube-proxy
	"uninterrupted", "interrupted", "down", // dialled
	"present", "absent", // link, metric
	"healthz-first", "service-first", // readiness
}

// expectation is the parsed form of expect's arguments.
type expectation struct {
	text        string
	words       []string // any of these outcomes; empty = any outcome
	attrs       []attrTest
	op, operand string         // "=", ">", ...: a comparison with the outcome as a number or word
	pattern     *regexp.Regexp // with op "~" or "!~"
	contradicts string
}

type attrTest struct{ name, op, value string }

var attrSyntax = regexp.MustCompile(`^([a-z][a-z0-9-]*)(>=|<=|!=|=|>|<)(.*)$`)

// parseExpectation reads: OUTCOME[,OUTCOME] [ATTR=VALUE ...] | OP VALUE | ~ REGEXP, then [contradicts NOTE].
func parseExpectation(args []string) (*expectation, error) {
	e := &expectation{}
	if i := slices.Index(args, "contradicts"); i >= 0 {
		if i+2 != len(args) {
			return nil, fmt.Errorf("contradicts: expected one quoted note that says what is really so, at the end")
		}
		e.contradicts, args = args[i+1], args[:i]
	}
	if len(args) == 0 {
		return nil, fmt.Errorf("expected an outcome (%s), a comparison (= 0, > 5) or a pattern (~ regexp)", strings.Join(outcomes, ", "))
	}
	e.text = strings.Join(args, " ")
	switch op := args[0]; op {
	case "~", "!~":
		if len(args) != 2 {
			return nil, fmt.Errorf("%s: expected one regular expression", op)
		}
		re, err := regexp.Compile(args[1])
		if err != nil {
			return nil, err
		}
		e.op, e.pattern = op, re
		return e, nil
	case "=", "!=", ">", ">=", "<", "<=":
		if len(args) != 2 {
			return nil, fmt.Errorf("%s: expected one value", op)
		}
		if _, err := strconv.ParseFloat(args[1], 64); err != nil && op != "=" && op != "!=" {
			return nil, fmt.Errorf("%s: %q is not a number", op, args[1])
		}
		e.op, e.operand = op, args[1]
		return e, nil
	}
	for i, a := range args {
		if m := attrSyntax.FindStringSubmatch(a); m != nil {
			e.attrs = append(e.attrs, attrTest{m[1], m[2], m[3]})
			continue
		}
		if i > 0 {
			return nil, fmt.Errorf("%q: expected ATTRIBUTE=VALUE", a)
		}
		e.words = strings.Split(a, ",")
		for _, w := range e.words {
			if !slices.Contains(outcomes, w) {
				return nil, fmt.Errorf("unknown outcome %q%s", w, lab.Suggest(w, outcomes))
			}
		}
	}
	return e, nil
}

// meets reports whether an observation is as expected.
func (e *expectation) meets(o observation) bool {
	switch e.op {
	case "~":
		return e.pattern.MatchString(o.outcome)
	case "!~":
		return !e.pattern.MatchString(o.outcome)
	case "":
	default:
		return compareValues(o.outcome, e.op, e.operand)
	}
	if len(e.words) > 0 && !slices.Contains(e.words, o.outcome) {
		return false
	}
	for _, t := range e.attrs {
		got, known := o.attrs[t.name]
		if !known {
			got = "0" // an endpoint that got nothing has no count
		}
		if !compareValues(got, t.op, t.value) {
			return false
		}
	}
	return true
}

// compareValues compares as numbers where both are, else as words; value may list alternatives for =.
func compareValues(got, op, value string) bool {
	x, errX := strconv.ParseFloat(got, 64)
	y, errY := strconv.ParseFloat(value, 64)
	if errX == nil && errY == nil {
		switch {
		case x < y:
			return compare(-1, op)
		case x > y:
			return compare(1, op)
		}
		return compare(0, op)
	}
	in := slices.Contains(strings.Split(value, ","), got)
	return op == "=" && in || op == "!=" && !in
}
