package probe

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// span is consecutive numbers, first and last included.
type span [2]int

// spans are numbers in the order in which they came, as few as hold them.
type spans []span

// with adds a number that came.
func (s spans) with(n int) spans {
	if last := len(s) - 1; last >= 0 && s[last][1]+1 == n {
		s[last][1] = n
		return s
	}
	return append(s, span{n, n})
}

// note keeps what a one-way flow tells: "FLOW N".
func (s *Server) note(arg string) {
	flow, number, _ := strings.Cut(arg, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told[flow] = s.told[flow].with(n)
}

func (s *Server) noted(flow string) spans {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.told[flow])
}

// OneWay starts a flow as [Stream] does, whose datagrams ask for no answer: receivers keep their numbers, and [Flow.Collect] asks for
// them.
func OneWay(ctx context.Context, ns Netns, r Request, interval time.Duration) (*Flow, error) {
	return startFlow(ctx, ns, r, interval, strconv.FormatUint(requestID.Add(1), 10))
}

// Collect asks a server, from ns, which should be its own so that no Service is in the way, for the datagrams of a one-way flow that it
// has got. Where nothing listens there are none.
func (f *Flow) Collect(ctx context.Context, ns Netns, server netip.AddrPort, timeout time.Duration) error {
	r := Request{Network: "udp", Target: server, Timeout: timeout}
	a, err := begin(ctx, ns, r)
	if err != nil {
		return err
	}
	defer a.end()
	file, _, err := a.connect(ns)
	if file == nil {
		return err
	}
	c, err := netConn(file)
	if err != nil {
		return fmt.Errorf("flow %s: %w", f.request, err)
	}
	defer c.Close()
	release := interruptOn(a.ctx, c)
	defer release()
	line, err := exchangeDatagram(c, toldRequest, f.tag)
	if err != nil {
		switch o, err := a.outcome(err); {
		case err != nil:
			return err
		case o.Kind != Refused:
			return fmt.Errorf("flow %s: %s was asked for what it has got: %s", f.request, server, o)
		}
		return nil
	}
	_, who := reachable(line)
	f.update(func(c *FlowCount) {
		for _, s := range who.Told {
			for n := s[0]; n <= s[1]; n++ {
				f.arrived(n, who.Endpoint)
			}
		}
	})
	return nil
}
