package script

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"kplab/lab"
)

// awaitable are the commands that only look and may be repeated.
var awaitable = []string{"conntrack", "count", "exec", "http", "ipvs-connections", "kubectl", "link", "log", "metric", "mounted", "probe", "proxy-mode", "sysctl"}

const (
	// awaitDeadline bounds the wait on the reference machine: longer than kube-proxy takes to try again after a failed sync.
	awaitDeadline = 45 * time.Second
	awaitPause    = 20 * time.Millisecond
)

// awaitCommands wait for what a script cannot make happen by itself.
func (s *session) awaitCommands() map[string]command {
	return map[string]command{
		"await": {
			args:    "COMMAND ARG... -- EXPECTATION",
			summary: "repeat a command until what it observes is as expected, or for 45 s",
			detail: []string{
				"COMMAND is one of " + strings.Join(awaitable, ", ") + ", EXPECTATION as after expect. The last thing observed is what the next assertion looks at: " +
					"await itself asserts nothing. A failure of COMMAND, as of one that asks a kube-proxy for its metrics too early, is taken for 'not yet'.",
			},
			parse: s.parseAwait,
		},
	}
}

func (s *session) parseAwait(args []string) (action, error) {
	i := slices.Index(args, "--")
	if i < 1 {
		return nil, errors.New("expected a command, -- and what to wait for")
	}
	if !slices.Contains(awaitable, args[0]) {
		return nil, fmt.Errorf("cannot await %q%s", args[0], lab.Suggest(args[0], awaitable))
	}
	if args[0] == "kubectl" && !slices.Contains(args[:i], "get") {
		return nil, errors.New("of kubectl only get may be repeated")
	}
	e, err := parseExpectation(args[i+1:])
	if err != nil {
		return nil, err
	}
	if e.contradicts != "" {
		return nil, errors.New("contradicts belongs to the expect that follows")
	}
	c := s.vocabulary()[args[0]]
	do, err := c.parse(args[1:i])
	if err != nil {
		return nil, fmt.Errorf("%w\n\tusage: %s %s", err, args[0], c.args)
	}
	return func(ctx context.Context) error { return s.await(ctx, do, e) }, nil
}

func (s *session) await(ctx context.Context, do action, e *expectation) error {
	waiting, cancel := s.deadline(ctx, awaitDeadline)
	defer cancel()
	pause := time.NewTicker(awaitPause)
	defer pause.Stop()
	s.quiet = true
	defer func() { s.quiet = false }()
	var seen []observation
	for {
		s.last = nil
		err := do(waiting)
		if err == nil && s.passed {
			return nil
		}
		if err == nil && len(s.last) > 0 {
			seen = s.last
			if !slices.ContainsFunc(seen, func(o observation) bool { return !e.meets(o) }) {
				break
			}
		}
		if err := s.proxiesRun(); err != nil {
			return err
		}
		select {
		case <-pause.C:
			continue
		case <-waiting.Done():
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if len(seen) == 0 {
			return err
		}
		break
	}
	s.quiet = false
	s.observe(seen...)
	return nil
}
