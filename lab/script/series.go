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
	seriesInterval = 20 * time.Millisecond // between the starts of two connections
	// A SYN that is lost is sent again after 1 s (RFC 6298): an attempt that waited for that would hide the loss.
	seriesTimeout = 900 * time.Millisecond
	seriesSettle  = 5 // connections that a look begins and ends with, so that it is about some
)

// series is the new connections of one client.
type series struct {
	*probe.Series
	name    string
	traffic string // "ext n1:nodeport/web"
	looked  int    // number of the last attempt that was looked at
}

// seriesCommands are about steady traffic of new connections, as clients meet a change.
func (s *session) seriesCommands() map[string]command {
	return map[string]command{
		"dial": {
			args:    "NAME [-4|-6] FROM TARGET",
			summary: "start steady traffic: a new TCP connection every 20 ms, each of which asks who is there, until 'close NAME' or the end",
			detail:  []string{"Observes its first connections as dialled does."},
			parse:   keepAs(s.dial),
		},
		"dialled": {
			args:    "NAME DURING",
			summary: "observe what new connections met since the last look: uninterrupted, interrupted (some failed, and then none did), or down (they still fail)",
			detail: []string{"DURING says what has changed since. Attributes: attempts, failed, gap-ms (from the start of the first that failed to the start of the first that succeeded after the last failure), " +
				"and how many came to each outcome (reachable, refused, timeout, ...). The figures are kept with the results."},
			parse: func(args []string) (action, error) {
				if len(args) != 2 {
					return nil, errors.New("expected a name, and in quotes what has changed")
				}
				return func(ctx context.Context) error {
					f := s.series[args[0]]
					if f == nil {
						return fmt.Errorf("no traffic %q was started", args[0])
					}
					return s.lookAtSeries(ctx, f, args[1])
				}, nil
			},
		},
	}
}

func (s *session) dial(ctx context.Context, name, fromName string, t target, family lab.Family) error {
	if s.series[name] != nil || s.flows[name] != nil || s.held[name] != nil {
		return fmt.Errorf("a connection %q is kept already", name)
	}
	from, to, err := s.ends(ctx, fromName, t, family)
	if err != nil {
		return err
	}
	f, err := probe.StartSeries(ctx, from, probe.Request{Network: "tcp", Target: to, Timeout: s.scaled(seriesTimeout)}, s.scaled(seriesInterval))
	if err != nil {
		return err
	}
	s.series[name] = &series{Series: f, name: name, traffic: familyFlag(family) + fromName + " " + t.text}
	return s.lookAtSeries(ctx, s.series[name], lab.BeforeAnyChange)
}

// lookAtSeries waits for the end of the connections that were started up to now, and of some that are started after.
func (s *session) lookAtSeries(ctx context.Context, f *series, during string) error {
	ctx, cancel := s.deadline(ctx, seriesTimeout+toolDeadline)
	defer cancel()
	first, last := f.looked+1, f.Started()+seriesSettle
	all, err := f.Between(ctx, first, last)
	if err != nil {
		return err
	}
	f.looked = last
	gap, open := probe.Gap(all)
	g := lab.Gap{
		Step: s.step(), Name: f.name, During: during, Traffic: f.traffic, Attempts: len(all), Outcomes: map[string]int{},
		Ms: float64(gap.Microseconds()) / 1000, Open: open, IntervalMs: float64(f.Interval().Microseconds()) / 1000,
	}
	for _, a := range all {
		g.Outcomes[string(a.Outcome.Kind)]++
		if a.Outcome.Kind != probe.Reachable {
			g.Failed++
		}
	}
	s.Gap(g)
	s.observe(gapObservation(g))
	return nil
}

// gapObservation says in one word what steady traffic met.
func gapObservation(g lab.Gap) observation {
	unit := "connections"
	if g.Kind != "" {
		unit = "datagrams"
	}
	o := observation{what: "dialled " + g.Traffic + ": " + g.During, outcome: "uninterrupted", attrs: map[string]string{
		"attempts": strconv.Itoa(g.Attempts), "failed": strconv.Itoa(g.Failed), "gap-ms": strconv.FormatFloat(g.Ms, 'f', 1, 64),
	}}
	var failures []string
	for _, kind := range slices.Sorted(maps.Keys(g.Outcomes)) {
		o.attrs[kind] = strconv.Itoa(g.Outcomes[kind])
		if kind != string(probe.Reachable) {
			failures = append(failures, fmt.Sprintf("%d %s", g.Outcomes[kind], kind))
		}
	}
	switch {
	case g.Failed == 0:
		o.got = fmt.Sprintf("uninterrupted (%d %s)", g.Attempts, unit)
	case g.Open:
		o.outcome = "down"
		o.got = fmt.Sprintf("down for %.0f ms so far (%d of %d %s: %s)", g.Ms, g.Failed, g.Attempts, unit, strings.Join(failures, ", "))
	default:
		o.outcome = "interrupted"
		o.got = fmt.Sprintf("interrupted for %.0f ms (%d of %d %s: %s)", g.Ms, g.Failed, g.Attempts, unit, strings.Join(failures, ", "))
	}
	return o
}

func (s *session) closeSeries() {
	for _, f := range s.series {
		_ = f.Close() // what went wrong with one that was looked at has been said
	}
}
