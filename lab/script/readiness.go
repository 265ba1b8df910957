package script

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"kplab/lab"
	"kplab/lab/probe"
)

// healthzPort is where kube-proxy serves /healthz by default, on all addresses.
const healthzPort = 10256

// readinessPause lies between two questions; what comes first is known to this precision.
const readinessPause = 2 * time.Millisecond

// readinessCommands compare what kube-proxy says of itself with what it does.
func (s *session) readinessCommands() map[string]command {
	return map[string]command{
		"readiness": {
			args:    "[-4|-6] NODE FROM TARGET",
			summary: "start kube-proxy on a node and observe what comes first: healthz-first (its /healthz says 200) or service-first (a TCP probe of TARGET is answered)",
			detail:  []string{"TARGET must refuse, rather than swallow, what comes before there are rules, as a node port does. Attributes: healthz-ms and service-ms, since the start."},
			parse: func(args []string) (action, error) {
				fams, args := takeFamilies(args)
				if len(args) != 3 || len(fams) != 1 {
					return nil, errors.New("expected a node, a host and a target")
				}
				t, err := parseTarget(args[2])
				if err != nil {
					return nil, err
				}
				return func(ctx context.Context) error { return s.readiness(ctx, fams[0], args[0], args[1], t) }, nil
			},
		},
	}
}

func (s *session) readiness(ctx context.Context, family lab.Family, nodeName, fromName string, t target) error {
	n, err := s.node(nodeName)
	if err != nil {
		return err
	}
	from, to, err := s.ends(ctx, fromName, t, family)
	if err != nil {
		return err
	}
	ctx, cancel := s.deadline(ctx, lab.SyncDeadline)
	defer cancel()
	began := time.Now()
	var healthz, service time.Duration
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.Proxy().Start(ctx, lab.ProxyOptions{}) })
	g.Go(func() (err error) {
		local := probe.Request{Network: "tcp", Target: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), healthzPort), Timeout: s.probeTimeout()}
		healthz, err = firstTime(ctx, began, func() (bool, error) {
			_, answer, err := probe.HTTP(ctx, n, local, "/healthz")
			return answer.Status == 200, err
		})
		return err
	})
	g.Go(func() (err error) {
		service, err = firstTime(ctx, began, func() (bool, error) {
			o, err := probe.Dial(ctx, from, probe.Request{Network: "tcp", Target: to, Timeout: s.probeTimeout()})
			return o.Kind == probe.Reachable, err
		})
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	o := observation{
		what: "readiness " + familyFlag(family) + nodeName + " " + fromName + " " + t.text, outcome: "healthz-first",
		attrs: map[string]string{"healthz-ms": fmt.Sprint(healthz.Milliseconds()), "service-ms": fmt.Sprint(service.Milliseconds())},
	}
	if service < healthz {
		o.outcome = "service-first"
	}
	o.got = fmt.Sprintf("%s (/healthz after %v, the Service after %v)", o.outcome, healthz.Round(time.Millisecond), service.Round(time.Millisecond))
	s.observe(o)
	return nil
}

// firstTime asks until the answer is yes and returns when it was asked.
func firstTime(ctx context.Context, began time.Time, ask func() (bool, error)) (time.Duration, error) {
	pause := time.NewTicker(readinessPause)
	defer pause.Stop()
	for {
		at := time.Since(began)
		yes, err := ask()
		if err != nil || yes {
			return at, err
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}
