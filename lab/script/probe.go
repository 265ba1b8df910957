package script

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"kplab/lab"
	"kplab/lab/probe"
)

const (
	// probeDeadline is how long silence lasts before it counts as timeout, on the reference machine. It is more than the
	// first retransmission of a SYN (1 s), so that one lost packet does not make a verdict.
	probeDeadline = 1500 * time.Millisecond
	// toolDeadline bounds one run of a tool or one scrape.
	toolDeadline = 10 * time.Second
)

// probeCommands send packets and say what a client sees.
func (s *session) probeCommands() map[string]command {
	return map[string]command{
		"probe": {
			args:    "[-4|-6|-46] FROM[,FROM...] tcp|udp|sctp|icmp[,...] TARGET[,TARGET...] [and FROM... PROTOCOL... TARGET...]...",
			summary: "send a request from a host and observe what a client there sees",
			detail: []string{
				"Observes reachable (attributes endpoint, source: the host whose address the server saw, source-address), refused, reset, unreachable, timeout (attribute icmp). " +
					"Lists are multiplied out, groups joined by 'and' are not; every probe is an observation of its own, and all are sent at once.",
				"TARGET: " + targetHelp + ".",
			},
			parse: func(args []string) (action, error) {
				fams, args := takeFamilies(args)
				var all []probeSpec
				for more := true; more; {
					group := args
					i := slices.Index(args, "and")
					if more = i >= 0; more {
						group, args = args[:i], args[i+1:]
					}
					specs, err := parseProbes(fams, group)
					if err != nil {
						return nil, err
					}
					all = append(all, specs...)
				}
				return func(ctx context.Context) error { return s.probeAll(ctx, all) }, nil
			},
		},
		"arp": {
			args:    "[-4|-6] FROM ADDRESS",
			summary: "ask who has an address (ARP, or neighbor discovery with -6) on eth0, and observe answered or silent",
			detail:  []string{"Attributes: answers, and for each node that answered its name, as 1. ADDRESS is a target without a port."},
			parse: func(args []string) (action, error) {
				fams, args := takeFamilies(args)
				if len(args) != 2 || len(fams) != 1 {
					return nil, errors.New("expected a host and an address")
				}
				t, err := parseTarget(args[1])
				if err != nil {
					return nil, err
				}
				return func(ctx context.Context) error { return s.arp(ctx, args[0], t, fams[0]) }, nil
			},
		},
		"spread": {
			args:    "[-4|-6] [-keep NAME [-talk|-push]] FROM TARGET N",
			summary: "make N TCP connections one after the other and observe how many each endpoint got",
			detail: []string{"Attributes: one count for each endpoint (s1, s2, ...), failed. With -keep they stay open, as NAME, until 'close NAME'; " +
				"one that is idle does not notice what would reset it. With -talk a small request goes over each every 20 ms from then on; with -push the endpoint sends something every 20 ms."},
			parse: func(args []string) (action, error) {
				fams, args := takeFamilies(args)
				keep, traffic := "", lab.Traffic("")
				if len(args) > 1 && args[0] == "-keep" {
					keep, args = args[1], args[2:]
					if len(args) > 0 && (args[0] == "-talk" || args[0] == "-push") {
						traffic = map[string]lab.Traffic{"-talk": lab.Requests, "-push": lab.Push}[args[0]]
						args = args[1:]
					}
				}
				if len(args) != 3 || len(fams) != 1 {
					return nil, errors.New("expected a host, a target and a number")
				}
				t, err := parseTarget(args[1])
				if err != nil {
					return nil, err
				}
				n, err := strconv.Atoi(args[2])
				if err != nil || n < 1 || n > 1000 {
					return nil, fmt.Errorf("%q: expected a number from 1 to 1000", args[2])
				}
				return func(ctx context.Context) error { return s.spread(ctx, args[0], t, fams[0], n, keep, traffic) }, nil
			},
		},
	}
}

// parseProbes multiplies out one group of hosts, protocols and targets.
func parseProbes(fams []lab.Family, args []string) (all []probeSpec, err error) {
	if len(args) != 3 {
		return nil, fmt.Errorf("expected hosts, protocols and targets; got %d words", len(args))
	}
	protocols := strings.Split(args[1], ",")
	for _, p := range protocols {
		if p != "icmp" && !slices.Contains(networks, p) {
			return nil, fmt.Errorf("unknown protocol %q%s", p, lab.Suggest(p, append([]string{"icmp"}, networks...)))
		}
	}
	var targets []target
	for _, text := range strings.Split(args[2], ",") {
		t, err := parseTarget(text)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	for _, from := range strings.Split(args[0], ",") {
		for _, f := range fams {
			for _, p := range protocols {
				for _, t := range targets {
					all = append(all, probeSpec{from, f, p, t})
				}
			}
		}
	}
	return all, nil
}

type probeSpec struct {
	from     string
	family   lab.Family
	protocol string
	target   target
}

func (p probeSpec) String() string {
	return "probe " + familyFlag(p.family) + p.from + " " + p.protocol + " " + p.target.text
}

// probeAll sends all probes at once: one that waits for its timeout does not hold up the others.
func (s *session) probeAll(ctx context.Context, asked []probeSpec) error {
	ctx, cancel := s.deadline(ctx, probeDeadline+toolDeadline)
	defer cancel()
	var all []probeSpec
	for _, p := range asked {
		if why := s.lacks(p.from, p.target, p.family); why != "" {
			s.passOver(p.String(), why)
			continue
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		s.last, s.passed = nil, true
		return nil
	}
	seen := make([]observation, len(all))
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() { seen[i], errs[i] = s.probeOne(ctx, p) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.observe(seen...)
	return nil
}

func (s *session) probeOne(ctx context.Context, p probeSpec) (observation, error) {
	from, err := s.Env.Host(p.from)
	if err != nil {
		return observation{}, err
	}
	to, err := s.resolve(ctx, p.target, from, p.protocol, p.family)
	if err != nil {
		return observation{}, err
	}
	var out probe.Outcome
	if p.protocol == "icmp" {
		out, err = probe.Ping(ctx, from, probe.Request{Network: "icmp", Target: to, Timeout: s.probeTimeout()})
	} else {
		out, err = probe.Dial(ctx, from, probe.Request{Network: p.protocol, Target: to, Timeout: s.probeTimeout()})
	}
	if err != nil {
		return observation{}, fmt.Errorf("%s (%s): %w", p, to, err)
	}
	return s.outcome(p.String(), out), nil
}

func (s *session) probeTimeout() time.Duration { return s.scaled(probeDeadline) }

// outcome turns what a probe saw into an observation.
func (s *session) outcome(what string, out probe.Outcome) observation {
	attrs := map[string]string{"endpoint": out.Endpoint, "icmp": out.ICMP, "detail": out.Detail}
	if out.Source.IsValid() {
		attrs["source"], attrs["source-address"] = s.Env.Owner(out.Source.Addr()), out.Source.Addr().String()
	}
	return observation{what: what, outcome: string(out.Kind), got: out.String(), attrs: attrs}
}
