package script

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
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

// flow is a UDP flow that a script keeps.
type flow struct {
	*probe.Flow
	name    string
	traffic string // "c1 svc/web:53"
	// port is where the endpoints of a one-way flow listen, who can be asked there what they got; 0 for one that is answered.
	port uint16
	// looked is the number of the last datagram that a look with a change was about, met what the flow had met by then.
	looked int
	met    probe.FlowCount
}

// streamCommands are about UDP flows: one source port that goes on sending, as a metrics sender does.
func (s *session) streamCommands() map[string]command {
	return map[string]command{
		"stream": {
			args:    "NAME [-one-way] [-4|-6] FROM TARGET",
			summary: "start a UDP flow, a datagram every 10 ms from one port until 'close NAME' or the end, and observe what its first datagrams meet",
			detail: []string{"Each datagram is a request and wants an answer; with -one-way none does, and receivers count them. Observes as streamed does, " +
				"a one-way flow as 'streamed NAME DURING'."},
			parse: s.parseStream,
		},
		"streamed": {
			args:    "NAME [DURING]",
			summary: "observe what a UDP flow's next datagrams meet: reachable, refused, unreachable or timeout; of a one-way flow, what all met since the last look: uninterrupted, interrupted or down",
			detail: []string{"Attributes: endpoint (who answered, or received, last), and for each endpoint how many of the datagrams it answered or received. DURING says what has changed since the last look, and has to be said of a one-way flow: " +
				"the figures of all datagrams since then are kept with the results, and are attributes: attempts, failed (not answered, or not received), gap-ms (as of dialled)."},
			parse: func(args []string) (action, error) {
				if len(args) < 1 || len(args) > 2 {
					return nil, errors.New("expected a name, and perhaps in quotes what has changed")
				}
				return func(ctx context.Context) error {
					f := s.flows[args[0]]
					switch {
					case f == nil:
						return fmt.Errorf("no UDP flow %q was started", args[0])
					case f.port == 0:
						return s.lookAt(ctx, "streamed "+args[0], f, strings.Join(args[1:], ""))
					case len(args) == 1:
						return fmt.Errorf("UDP flow %q is one-way: expected, in quotes, what has changed", args[0])
					}
					return s.lookAtReceivers(ctx, f, args[1])
				}, nil
			},
		},
	}
}

func (s *session) parseStream(args []string) (action, error) {
	if len(args) > 1 && args[1] == "-one-way" {
		return keepAs(s.streamOneWay)(slices.Delete(slices.Clone(args), 1, 2))
	}
	return keepAs(s.stream)(args)
}

func (s *session) stream(ctx context.Context, name, fromName string, t target, family lab.Family) error {
	f, err := s.startStream(ctx, name, fromName, t, family, probe.Stream)
	if err != nil {
		return err
	}
	return s.lookAt(ctx, "stream "+f.traffic, f, "")
}

// startStream starts a UDP flow of either kind and keeps it.
func (s *session) startStream(ctx context.Context, name, fromName string, t target, family lab.Family,
	start func(context.Context, probe.Netns, probe.Request, time.Duration) (*probe.Flow, error)) (*flow, error) {
	if s.series[name] != nil || s.flows[name] != nil || s.held[name] != nil {
		return nil, fmt.Errorf("a connection %q is kept already", name)
	}
	from, err := s.Env.Host(fromName)
	if err != nil {
		return nil, err
	}
	to, err := s.resolve(ctx, t, from, "udp", family)
	if err != nil {
		return nil, err
	}
	f, err := start(ctx, from, probe.Request{Network: "udp", Target: to, Timeout: s.probeTimeout()}, s.scaled(streamInterval))
	if err != nil {
		return nil, err
	}
	s.flows[name] = &flow{Flow: f, name: name, traffic: familyFlag(family) + fromName + " " + t.text}
	return s.flows[name], nil
}

// lookAt waits until some datagrams have been sent from now on and observes what became of them. With a change it keeps what became of
// all since the last one.
func (s *session) lookAt(ctx context.Context, what string, f *flow, during string) error {
	ctx, cancel := s.deadline(ctx, probeDeadline+toolDeadline)
	defer cancel()
	sent := func(n int, since probe.FlowCount) (probe.FlowCount, error) {
		return f.Wait(ctx, func(c probe.FlowCount) bool { return attempts(c)-attempts(since) >= n })
	}
	before, err := sent(streamSettle, f.Count())
	if err != nil {
		return err
	}
	last, err := sent(streamLook, before)
	if err != nil {
		return err
	}
	// The last one may be on its way; silence has to last.
	patience, cancel := context.WithTimeout(ctx, s.scaled(answerDeadline))
	defer cancel()
	seen, err := f.Wait(patience, func(c probe.FlowCount) bool { return answers(c.Since(before)) >= streamLook && f.settled(last.Tried) })
	if err != nil && ctx.Err() != nil {
		return err
	}
	o := flowObservation(what, seen.Since(before))
	if during != "" {
		maps.Copy(o.attrs, s.keepGap(f, last.Tried, lab.UDPRequests, during).attrs)
	}
	s.observe(o)
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

// settled reports whether a datagram has been answered or is known to be received.
func (f *flow) settled(number int) bool {
	a := f.Between(number, number)
	return len(a) == 1 && a[0].Outcome.Kind == probe.Reachable
}

func (s *session) streamOneWay(ctx context.Context, name, fromName string, t target, family lab.Family) error {
	f, err := s.startStream(ctx, name, fromName, t, family, probe.OneWay)
	if err != nil {
		return err
	}
	if f.port, err = s.endpointPort(ctx, t, "udp"); err != nil {
		return err
	}
	return s.lookAtReceivers(ctx, f, lab.BeforeAnyChange)
}

// lookAtReceivers waits until some datagrams have been sent from now on and observes what has been received of all since the last look.
func (s *session) lookAtReceivers(ctx context.Context, f *flow, during string) error {
	ctx, cancel := s.deadline(ctx, probeDeadline+toolDeadline)
	defer cancel()
	last := f.Count().Tried + streamLook
	if _, err := f.Wait(ctx, func(c probe.FlowCount) bool { return c.Tried >= last }); err != nil {
		return err
	}
	if err := s.collect(ctx, f, last); err != nil {
		return err
	}
	s.observe(s.keepGap(f, last, lab.UDPOneWay, during))
	return nil
}

// collect asks every receiver what it has got, until one has the datagram numbered last. That may be on its way; silence has to last.
func (s *session) collect(ctx context.Context, f *flow, last int) error {
	patience, cancel := context.WithTimeout(ctx, s.scaled(answerDeadline))
	defer cancel()
	again := time.NewTicker(s.scaled(streamInterval))
	defer again.Stop()
	for {
		for _, name := range s.Env.Hosts() {
			h, err := s.Env.Host(name)
			if err != nil {
				return err
			}
			if err := f.Collect(ctx, h, netip.AddrPortFrom(loopback, f.port), s.probeTimeout()); err != nil {
				return err
			}
		}
		if f.settled(last) {
			return nil
		}
		select {
		case <-again.C:
		case <-patience.Done():
			return context.Cause(ctx) // nil where only the patience has ended: what has not come by now is lost
		}
	}
}

// loopback is where a server is asked from its own namespace.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// keepGap keeps what a flow's datagrams met since the last such look, up to the one numbered last.
func (s *session) keepGap(f *flow, last int, kind, during string) observation {
	all, now := f.Between(f.looked+1, last), f.Count()
	errs := now.Since(f.met).Errors
	f.looked, f.met = last, now
	gap, open := probe.Gap(all)
	g := lab.Gap{
		Step: s.step(), Name: f.name, Kind: kind, During: during, Traffic: f.traffic, Attempts: len(all),
		Outcomes: map[string]int{}, Endpoints: map[string]int{},
		Ms: float64(gap.Microseconds()) / 1000, Open: open, IntervalMs: float64(f.Interval().Microseconds()) / 1000,
	}
	endpoint := ""
	for _, a := range all {
		if a.Outcome.Kind != probe.Reachable {
			g.Failed++
			continue
		}
		endpoint = a.Outcome.Endpoint
		g.Outcomes[string(probe.Reachable)]++
		g.Endpoints[endpoint]++
	}
	// An ICMP error does not say which datagram it is about, only that one has failed.
	rest := g.Failed
	for _, met := range slices.Sorted(maps.Keys(errs)) {
		if n := min(errs[met], rest); n > 0 {
			word, _, _ := strings.Cut(met, " ")
			g.Outcomes[word] += n
			rest -= n
		}
	}
	if rest > 0 {
		silence := string(probe.Timeout)
		if kind == lab.UDPOneWay {
			silence = "lost"
		}
		g.Outcomes[silence] += rest
	}
	s.Gap(g)
	o := gapObservation(g)
	o.what = "streamed " + f.name + ": " + during
	o.attrs["endpoint"] = endpoint
	for name, n := range g.Endpoints {
		o.attrs[name] = strconv.Itoa(n)
	}
	return o
}

func (s *session) closeFlows() {
	for _, f := range s.flows {
		f.Close()
	}
}
