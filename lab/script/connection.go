package script

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"kplab/lab"
	"kplab/lab/probe"
)

// heldConn is a connection, or several, that a script keeps open under a name.
type heldConn struct {
	conns []*probe.Conn
	// talk is what goes over them all the while, by its traffic; nil where they are idle.
	talk    *probe.Talk
	traffic lab.Traffic
}

func (h *heldConn) close() error {
	var err error
	if h.talk != nil {
		err = h.talk.Close()
	}
	for _, c := range h.conns {
		c.Close()
	}
	return err
}

func (s *session) closeHeld() {
	for _, h := range s.held {
		_ = h.close() // what went wrong with one that was asked has been said
	}
}

// bulk is how much goes through a connection before a stray segment is sent: several times the largest window that either
// end offers, so that the oldest sequence numbers are out of every window.
const bulk = 8 << 20

// keepAs makes the parser of a command that opens something from a host to a target and keeps it under a name:
// NAME [-4|-6] FROM TARGET.
func keepAs(open func(ctx context.Context, name, from string, t target, family lab.Family) error) func([]string) (action, error) {
	return func(args []string) (action, error) {
		if len(args) < 3 {
			return nil, errors.New("expected a name, a host and a target")
		}
		name := args[0]
		fams, rest := takeFamilies(args[1:])
		if len(rest) != 2 || len(fams) != 1 {
			return nil, errors.New("expected a name, a host and a target")
		}
		t, err := parseTarget(rest[1])
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error { return open(ctx, name, rest[0], t, fams[0]) }, nil
	}
}

// connectionCommands are about TCP connections that outlive one request.
func (s *session) connectionCommands() map[string]command {
	return map[string]command{
		"connect": {
			args:    "NAME [-4|-6] FROM TARGET",
			summary: "open a TCP connection, keep it as NAME and observe what probe would",
			parse:   keepAs(s.connect),
		},
		"exchange": {
			args:    "NAME [BYTES]",
			summary: "send a request over a kept connection and observe alive (it was answered), reset, closed or timeout",
			detail: []string{"With BYTES, that many are fetched; 'bulk' stands for enough to move past every window. Of connections that spread has kept, each is asked: " +
				"alive where all are, else what became of the first that is not; the counts are kept with the results. Attributes: endpoint (of the first), and how many are alive, reset, closed, timeout."},
			parse: func(args []string) (action, error) {
				if len(args) < 1 || len(args) > 2 {
					return nil, errors.New("expected a name, and perhaps a number of bytes")
				}
				var n int64
				if len(args) == 2 {
					var err error
					if n, err = parseBytes(args[1]); err != nil {
						return nil, err
					}
				}
				return s.onHeld(args[0], func(ctx context.Context, h *heldConn) error { return s.exchange(ctx, args[0], h, n) }), nil
			},
		},
		"inject": {
			args:    "NAME old|future",
			summary: "send, from the pod at the far end of a kept connection, one segment of it that is out of window",
			detail: []string{"old: a sequence number acknowledged long ago, what an overly delayed duplicate looks like (kernel commit 6e250dcbff1d, 6.1, made conntrack accept it). " +
				"future: 50 MB beyond the window. The connection must have moved 'bulk' bytes before.",
				"Observes sent, with the attribute answer: what came back to the pod (rst, ack or nothing)."},
			parse: func(args []string) (action, error) {
				kinds := map[string]probe.Position{"old": probe.Old, "future": probe.Future}
				if len(args) != 2 {
					return nil, errors.New("expected a name and old or future")
				}
				kind, ok := kinds[args[1]]
				if !ok {
					return nil, fmt.Errorf("unknown segment %q: expected old or future", args[1])
				}
				return s.onConn(args[0], func(ctx context.Context, c *probe.Conn) error {
					server, err := s.Env.Host(c.Endpoint())
					if err != nil {
						return err
					}
					sent, err := probe.Inject(ctx, server, c, kind, s.scaled(answerDeadline))
					if err != nil {
						return err
					}
					s.observe(observation{what: "inject " + args[0] + " " + args[1], outcome: "sent", got: sent.String(), attrs: map[string]string{"answer": sent.Answer}})
					return nil
				}), nil
			},
		},
		"close": {
			args:    "NAME",
			summary: "close a kept connection, all of a spread, a UDP flow, or a series of connections",
			parse: func(args []string) (action, error) {
				if len(args) != 1 {
					return nil, errors.New("expected one name")
				}
				return func(context.Context) error {
					if f := s.flows[args[0]]; f != nil {
						delete(s.flows, args[0])
						return f.Close()
					}
					if f := s.series[args[0]]; f != nil {
						delete(s.series, args[0])
						return f.Close()
					}
					h := s.held[args[0]]
					if h == nil {
						return fmt.Errorf("no connection %q is kept", args[0])
					}
					delete(s.held, args[0])
					return h.close()
				}, nil
			},
		},
	}
}

func parseBytes(word string) (int64, error) {
	if word == "bulk" {
		return bulk, nil
	}
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil || n < 1 || n > 1<<30 {
		return 0, fmt.Errorf("%q: expected a number of bytes up to 1 GiB, or bulk", word)
	}
	return n, nil
}

// onConn makes an action on the first connection kept under a name.
func (s *session) onConn(name string, do func(context.Context, *probe.Conn) error) action {
	return s.onHeld(name, func(ctx context.Context, h *heldConn) error { return do(ctx, h.conns[0]) })
}

// onHeld makes an action on the connections kept under a name.
func (s *session) onHeld(name string, do func(context.Context, *heldConn) error) action {
	return func(ctx context.Context) error {
		h := s.held[name]
		if h == nil || len(h.conns) == 0 {
			return fmt.Errorf("no connection %q is kept", name)
		}
		ctx, cancel := s.deadline(ctx, connDeadline)
		defer cancel()
		return do(ctx, h)
	}
}

// answerDeadline is how long to wait for an answer that may well not come, on a link without queues.
const answerDeadline = 300 * time.Millisecond

// talkInterval is the time between two requests, or segments of an endpoint, over a connection that is in use: shorter than any gap of a
// kube-proxy that starts.
const talkInterval = 20 * time.Millisecond

// connDeadline bounds one command on a connection, bulk transfer included.
const connDeadline = 20 * time.Second

// ends finds the client and the address of a TCP connection.
func (s *session) ends(ctx context.Context, fromName string, t target, family lab.Family) (lab.Host, netip.AddrPort, error) {
	from, err := s.Env.Host(fromName)
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	to, err := s.resolve(ctx, t, from, "tcp", family)
	return from, to, err
}

func (s *session) connect(ctx context.Context, name, fromName string, t target, family lab.Family) error {
	if s.held[name] != nil {
		return fmt.Errorf("a connection %q is kept already", name)
	}
	from, to, err := s.ends(ctx, fromName, t, family)
	if err != nil {
		return err
	}
	ctx, cancel := s.deadline(ctx, connDeadline)
	defer cancel()
	conn, out, err := probe.Hold(ctx, from, probe.Request{Network: "tcp", Target: to, Timeout: s.probeTimeout()})
	if err != nil {
		return err
	}
	if conn != nil {
		s.held[name] = &heldConn{conns: []*probe.Conn{conn}}
	}
	s.observe(s.outcome("connect "+familyFlag(family)+fromName+" "+t.text, out))
	return nil
}

func (s *session) exchange(ctx context.Context, name string, h *heldConn, n int64) error {
	if h.talk != nil && h.talk.Err() != nil {
		return h.talk.Err()
	}
	o := observation{what: "exchange " + name, outcome: string(probe.Alive), attrs: map[string]string{"endpoint": h.conns[0].Endpoint()}}
	if n > 0 {
		o.what += " bulk"
	}
	// At the same time: each that stands still takes as long as it may.
	states := make([]probe.State, len(h.conns))
	asked, ctx := errgroup.WithContext(ctx)
	for i, c := range h.conns {
		asked.Go(func() (err error) {
			if n > 0 {
				states[i], err = c.Bulk(ctx, n)
			} else {
				states[i], err = c.Exchange(ctx, 64)
			}
			return err
		})
	}
	if err := asked.Wait(); err != nil {
		return err
	}
	counts := map[probe.State]int{}
	for _, state := range states {
		if counts[state]++; o.outcome == string(probe.Alive) {
			o.outcome = string(state)
		}
	}
	for state, count := range counts {
		o.attrs[string(state)] = strconv.Itoa(count)
	}
	if len(h.conns) > 1 {
		s.Survivors(lab.Survivors{Step: s.step(), Name: name, Connections: len(h.conns), Traffic: h.traffic, Outcomes: words(counts)})
		o.got = fmt.Sprintf("%s (%d of %d alive)", o.outcome, counts[probe.Alive], len(h.conns))
	}
	s.observe(o)
	return nil
}

// words are counts by what the states are called.
func words(counts map[probe.State]int) map[string]int {
	named := map[string]int{}
	for state, n := range counts {
		named[string(state)] = n
	}
	return named
}

// spread makes n connections in turn, so that a scheduler sees each before the next.
func (s *session) spread(ctx context.Context, fromName string, t target, family lab.Family, n int, keep string, traffic lab.Traffic) error {
	what := fmt.Sprintf("spread %s%s %s %d", familyFlag(family), fromName, t.text, n)
	if why := s.lacks(fromName, t, family); why != "" {
		s.passOver(what, why)
		s.last, s.passed = nil, true
		return nil
	}
	from, to, err := s.ends(ctx, fromName, t, family)
	if err != nil {
		return err
	}
	if keep != "" && s.held[keep] != nil {
		return fmt.Errorf("a connection %q is kept already", keep)
	}
	open, cancel := s.deadline(ctx, connDeadline)
	defer cancel()
	d, err := probe.Spread(open, from, probe.Request{Network: "tcp", Target: to, Timeout: s.probeTimeout()}, n, keep != "")
	if err != nil {
		return err
	}
	if keep != "" {
		s.held[keep] = &heldConn{conns: d.Conns}
	}
	switch h := s.held[keep]; traffic {
	case lab.Requests:
		h.talk, h.traffic = probe.StartTalk(ctx, d.Conns, s.scaled(talkInterval)), traffic
	case lab.Push:
		h.talk, h.traffic = probe.StartPush(ctx, d.Conns, s.scaled(talkInterval)), traffic
	}
	attrs, failed := map[string]string{}, 0
	for endpoint, count := range d.Endpoints {
		attrs[endpoint] = strconv.Itoa(count)
	}
	for _, count := range d.Failed {
		failed += count
	}
	attrs["failed"] = strconv.Itoa(failed)
	s.observe(observation{what: what, outcome: d.String(), attrs: attrs})
	return nil
}

// arp asks for an address on eth0 and reports who answers.
func (s *session) arp(ctx context.Context, fromName string, t target, family lab.Family) error {
	from, err := s.Env.Host(fromName)
	if err != nil {
		return err
	}
	addr, _, err := s.resolvePlace(ctx, t, from, family)
	if err != nil {
		return err
	}
	ctx, cancel := s.deadline(ctx, probeDeadline+toolDeadline)
	defer cancel()
	ask := probe.ARP
	if family == lab.IPv6 {
		ask = probe.NDP
	}
	res, err := ask(ctx, from, "eth0", addr, s.scaled(answerDeadline))
	if err != nil {
		return err
	}
	o := observation{what: "arp " + familyFlag(family) + fromName + " " + t.text, outcome: "silent", attrs: map[string]string{"answers": "0"}}
	if res.Answered() {
		var hosts []string
		for _, mac := range res.MACs {
			hosts = append(hosts, s.hostOfMAC(ctx, mac.String()))
		}
		o.outcome = "answered"
		o.attrs = map[string]string{"answers": strconv.Itoa(len(res.MACs))}
		for _, host := range hosts {
			o.attrs[host] = "1"
		}
		slices.Sort(hosts)
		o.got = "answered (" + strings.Join(hosts, ", ") + ")"
	}
	s.observe(o)
	return nil
}

// hostOfMAC names the node whose eth0 has the MAC, or returns the MAC itself.
func (s *session) hostOfMAC(ctx context.Context, mac string) string {
	for _, n := range s.Env.Nodes() {
		if out, err := n.Run(ctx, "ip", "-o", "link", "show", "eth0"); err == nil && strings.Contains(out, mac) {
			return n.Name()
		}
	}
	return mac
}
