package script

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"kplab/lab"
	"kplab/lab/probe"
)

const (
	streamInterval = 10 * time.Millisecond // between two datagrams
	streamSettle   = 2                     // datagrams that may still be answered for what went before
	streamLook     = 5                     // datagrams that a look is about
)

// streamCommands are about UDP flows: one source port that goes on sending, as a metrics sender does.
func (s *session) streamCommands() map[string]command {
	return map[string]command{
		"stream": {
			args:    "NAME [-4|-6] FROM TARGET",
			summary: "start a UDP flow, a datagram every 10 ms from one port until 'close NAME' or the end, and observe what its first datagrams meet",
			detail:  []string{"Observes as streamed does."},
			parse:   keepAs(s.stream),
		},
		"streamed": {
			args:    "NAME",
			summary: "observe what a UDP flow's next datagrams meet: reachable, refused, unreachable or timeout",
			detail:  []string{"Attributes: endpoint (who answered last), and for each endpoint how many of the datagrams it answered."},
			parse: func(args []string) (action, error) {
				if len(args) != 1 {
					return nil, errors.New("expected one name")
				}
				return func(ctx context.Context) error {
					f := s.flows[args[0]]
					if f == nil {
						return fmt.Errorf("no UDP flow %q was started", args[0])
					}
					return s.lookAt(ctx, "streamed "+args[0], f)
				}, nil
			},
		},
	}
}

func (s *session) stream(ctx context.Context, name, fromName string, t target, family lab.Family) error {
	if s.flows[name] != nil || s.held[name] != nil {
		return fmt.Errorf("a connection %q is kept already", name)
	}
	from, err := s.Env.Host(fromName)
	if err != nil {
		return err
	}
	to, err := s.resolve(ctx, t, from, "udp", family)
	if err != nil {
		return err
	}
	f, err := probe.Stream(ctx, from, probe.Request{Network: "udp", Target: to, Timeout: s.probeTimeout()}, s.scaled(streamInterval))
	if err != nil {
		return err
	}
	s.flows[name] = f
	return s.lookAt(ctx, "stream "+familyFlag(family)+fromName+" "+t.text, f)
}

// lookAt waits until some datagrams have been sent from now on and observes what became of them.
func (s *session) lookAt(ctx context.Context, what string, f *probe.Flow) error {
	ctx, cancel := s.deadline(ctx, probeDeadline+toolDeadline)
	defer cancel()
	sent := func(n int, since probe.FlowCount) (probe.FlowCount, error) {
		return f.Wait(ctx, func(c probe.FlowCount) bool { return attempts(c)-attempts(since) >= n })
	}
	before, err := sent(streamSettle, f.Count())
	if err != nil {
		return err
	}
	if _, err := sent(streamLook, before); err != nil {
		return err
	}
	// The last one may be on its way; silence has to last.
	patience, cancel := context.WithTimeout(ctx, s.scaled(answerDeadline))
	defer cancel()
	seen, err := f.Wait(patience, func(c probe.FlowCount) bool { return answers(c.Since(before)) >= streamLook })
	if err != nil && ctx.Err() != nil {
		return err
	}
	s.observe(flowObservation(what, seen.Since(before)))
	return nil
}

// attempts counts datagrams sent, and those that the kernel refused to send.
func attempts(c probe.FlowCount) int { return c.Sent + sum(c.Errors) }

func answers(c probe.FlowCount) int { return sum(c.Answered) + sum(c.Errors) }

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// flowObservation says in one word what a flow met.
func flowObservation(what string, c probe.FlowCount) observation {
	o := observation{what: what, outcome: string(probe.Timeout), attrs: map[string]string{"sent": strconv.Itoa(c.Sent)}}
	var parts []string
	for _, met := range slices.Sorted(maps.Keys(c.Errors)) {
		o.outcome, _, _ = strings.Cut(met, " ")
		parts = append(parts, met)
	}
	for _, endpoint := range slices.Sorted(maps.Keys(c.Answered)) {
		o.outcome = string(probe.Reachable)
		o.attrs["endpoint"], o.attrs[endpoint] = c.Last, strconv.Itoa(c.Answered[endpoint])
		parts = append(parts, fmt.Sprintf("reachable (%s)", endpoint))
	}
	o.got = strings.Join(parts, ", ")
	return o
}

func (s *session) closeFlows() {
	for _, f := range s.flows {
		f.Close()
	}
}
