package script

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"rsc.io/script"

	"kplab/lab"
)

// Setting is what a script runs in and where it reports to.
type Setting struct {
	Env       lab.Env
	Cell      lab.Cell
	Machine   lab.Machine
	Check     func(lab.Check)     // takes each check as it is made
	Gap       func(lab.Gap)       // takes what steady traffic met
	Survivors func(lab.Survivors) // takes what became of kept connections
	State     func(lab.State)     // takes what a node's kernel held
	Log       func(string)        // takes the transcript, line by line
}

// session is one execution of a script, or the dry one that checks it.
type session struct {
	Setting
	script *Script
	dry    bool

	at      int      // line being executed
	conds   []string // its conditions (dry only)
	claim   string
	last    []observation
	checks  []lab.Check
	held    map[string]*heldConn
	flows   map[string]*flow
	series  map[string]*series
	planted []planted
	sysctls map[string]map[string]string // of each node, as its first state had them
	quiet   bool                         // what is observed is not for the transcript
	absent  []string                     // what the env lacks that the script asked for: reasons, each once
	passed  bool                         // the last command observed nothing, for such a reason: there is nothing to assert
	state   *script.State
}

// stopError ends a script early with a verdict: a skip, or a must that did not hold.
type stopError struct {
	verdict lab.Verdict
	reason  string
}

func (e *stopError) Error() string { return e.reason }

// Run executes the script and returns its verdict and, unless it passed, the reason.
func (s *Script) Run(ctx context.Context, set Setting) (lab.Verdict, string) {
	sess := &session{Setting: set, script: s, held: map[string]*heldConn{}, flows: map[string]*flow{}, series: map[string]*series{}, sysctls: map[string]map[string]string{}}
	defer sess.closeHeld()
	defer sess.closeFlows()
	defer sess.closeSeries()
	state, err := script.NewState(ctx, "/", []string{})
	if err != nil {
		return lab.Error, err.Error()
	}
	sess.state = state
	if err := sess.setVariables(); err != nil {
		return lab.Error, err.Error()
	}
	lines := &lineReader{lines: s.comment, at: &sess.at, log: set.Log}
	if set.Cell.Mode == lab.NoKubeProxy {
		lines.omit = aboutKubeProxy
	}
	err = sess.engine().Execute(state, s.File, bufio.NewReader(lines), io.Discard)
	if err == nil {
		err = sess.proxiesRun()
	}
	return sess.verdict(ctx, err)
}

// verdict reads the outcome off the checks and the error that ended the script, if any.
func (s *session) verdict(ctx context.Context, err error) (lab.Verdict, string) {
	var stop *stopError
	var absent *lab.AbsentError
	switch {
	case errors.As(err, &stop) && stop.verdict == lab.Skip:
		return lab.Skip, stop.reason
	case errors.As(err, &absent):
		s.absent = append(s.absent, absent.Reason)
	case err != nil && !errors.As(err, &stop):
		if cause := context.Cause(ctx); cause != nil {
			return lab.Error, fmt.Sprintf("%v (%v)", err, cause)
		}
		return lab.Error, fmt.Sprintf("%s:%d: %v", s.script.File, s.at, bare(err))
	}
	for _, c := range s.checks {
		if c.Control && !c.OK {
			return lab.Error, fmt.Sprintf("control deviates, so the other checks prove nothing: %s: %s: expected %s, observed %s", c.Step, c.What, c.Expected, c.Observed)
		}
	}
	for _, c := range s.checks {
		if !c.OK {
			return lab.Fail, fmt.Sprintf("%s: %s: expected %s, observed %s", c.Step, c.What, c.Expected, c.Observed)
		}
	}
	if s.Cell.Mode == lab.NoKubeProxy && !s.asserted() {
		return lab.Skip, "every check is about kube-proxy's modes, and there is no kube-proxy"
	}
	if why := strings.Join(s.absent, "; "); why != "" {
		if absent != nil || !s.whole() {
			return lab.Skip, why
		}
		return lab.Pass, "left out: " + why
	}
	if len(s.checks) == 0 {
		return lab.Error, "the script made no check in this setting"
	}
	return lab.Pass, ""
}

// whole reports whether the checks are enough to say something: a control, and something that it stands for.
func (s *session) whole() bool {
	return s.asserted() && slices.ContainsFunc(s.checks, func(c lab.Check) bool { return c.Control })
}

// asserted reports whether anything but controls was checked.
func (s *session) asserted() bool {
	return slices.ContainsFunc(s.checks, func(c lab.Check) bool { return !c.Control })
}

// lacks is why the env has no place for a probe, "" if it has.
func (s *session) lacks(from string, t target, family lab.Family) string {
	if e, ok := s.Env.(lab.Partial); ok {
		return e.Lacks(from, t.place, family)
	}
	return ""
}

// passOver notes why a probe is not made.
func (s *session) passOver(what, why string) {
	if !slices.Contains(s.absent, why) {
		s.absent = append(s.absent, why)
	}
	if !s.quiet {
		s.Log(fmt.Sprintf("  %s: not made: %s", what, why))
	}
}

// proxiesRun is the guard against the oldest trap: a dead kube-proxy whose rules, or whose predecessor's, still answer.
func (s *session) proxiesRun() error {
	for _, n := range s.Env.Nodes() {
		if _, err := n.Proxy().Running(); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) step() string { return fmt.Sprintf("%s:%d", s.script.File, s.at) }

// deadline bounds one command.
func (s *session) deadline(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.scaled(d))
}

// scaled makes a duration of the reference machine one of this machine.
func (s *session) scaled(d time.Duration) time.Duration {
	return lab.Deadlines{Unit: s.Machine.Unit}.Of(d)
}

// lineReader hands out one line a Read, so that the line being executed is known: the engine does not tell its commands.
type lineReader struct {
	lines []string
	next  int
	at    *int
	log   func(string) // the engine's own transcript comes a section late
	// omit, if set, says of a line that it has no place in the setting.
	omit func(line string) bool
}

// aboutKubeProxy reports whether a line is guarded by kube-proxy's mode or version: where there is none, neither it nor its contrary can be
// asserted.
func aboutKubeProxy(line string) bool {
	g := guards.FindStringSubmatch(line)[1]
	return strings.Contains(g, "mode:") || strings.Contains(g, "kube-proxy:")
}

func (r *lineReader) Read(p []byte) (int, error) {
	if r.next == len(r.lines) {
		return 0, io.EOF
	}
	line := r.lines[r.next] + "\n"
	if len(line) > len(p) {
		return 0, fmt.Errorf("line %d is longer than %d bytes", r.next+1, len(p))
	}
	r.next++
	*r.at = r.next
	text := strings.TrimSpace(line)
	switch {
	case text == "":
	case r.omit != nil && r.omit(text):
		r.log("left out, since there is no kube-proxy: " + text)
		line = "\n"
	default:
		r.log(text)
	}
	return copy(p, line), nil
}
