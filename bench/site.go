package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/runtime"

	"kplab/lab"
	"kplab/lab/apiserver"
)

// site is an env made ready for a trial: node n1, which runs the only kube-proxy; client pod c1 and server pod s1 on it; Services; and
// a sink in s1 that takes every connection. Packets from c1 to a Service pass n1's rules and go to s1, and nowhere else.
type site struct {
	trial     lab.Trial
	machine   lab.Machine
	deadlines lab.Deadlines
	env       lab.Env
	node      lab.Node
	client    lab.Host
	server    lab.Host
	proxy     process
	sink      *sink
	clock     *generationClock
	execs     *execCounter
	pool      pool
	services  []*service
}

// process is what a trial needs of a kube-proxy besides lab.Proxy.
type process interface {
	lab.Proxy
	Current() (pid int, began time.Time)
}

// deliverer tells how long the API server took to send what existed.
type deliverer interface{ Deliveries() []apiserver.Delivery }

// applyStep bounds what is stored under one lock of the API server.
const applyStep = 1000

// newSite makes the Services and waits for nothing: kube-proxy does not run yet. On error everything is closed, env too.
func newSite(ctx context.Context, env lab.Env, root string, trial lab.Trial, machine lab.Machine) (_ *site, err error) {
	s := &site{trial: trial, machine: machine, deadlines: lab.Deadlines{Unit: machine.Unit}, env: env}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	s.node = env.Nodes()[0]
	var ok bool
	if s.proxy, ok = s.node.Proxy().(process); !ok {
		return nil, fmt.Errorf("benchmarks need a kube-proxy whose process the lab sees, not a %T", s.node.Proxy())
	}
	if s.client, err = env.Host("c1"); err != nil {
		return nil, err
	}
	if s.server, err = env.Host("s1"); err != nil {
		return nil, err
	}
	s.services = population(trial.Services, trial.Endpoints, &s.pool)
	if err := s.routeEndpoints(); err != nil {
		return nil, err
	}
	// A few ports more, for the endpoints that events add.
	if s.sink, err = newSink(s.server, firstPort, s.pool.ports()+1); err != nil {
		return nil, err
	}
	if s.clock, err = newGenerationClock(s.node); err != nil {
		return nil, err
	}
	if s.execs, err = countExecs(root); err != nil {
		return nil, err
	}
	return s, s.apply(ctx, s.services...)
}

// apply stores Services with their endpoints and takes in what was allocated.
func (s *site) apply(ctx context.Context, services ...*service) error {
	var objects []runtime.Object
	for i, svc := range services {
		objects = append(objects, svc.objects()...)
		if len(objects) < applyStep && i < len(services)-1 {
			continue
		}
		if err := s.env.Apply(ctx, objects); err != nil {
			return err
		}
		objects = objects[:0]
	}
	for _, svc := range services {
		stored, err := s.env.Service(ctx, svc.object.Namespace, svc.name())
		if err != nil {
			return err
		}
		svc.object = stored
	}
	return nil
}

// close ends what the site has made, and the env.
func (s *site) close() error {
	var errs []error
	if s.execs != nil {
		errs = append(errs, s.execs.close())
	}
	if s.clock != nil {
		s.clock.close()
	}
	if s.sink != nil {
		s.sink.close()
	}
	return errors.Join(append(errs, s.env.Close())...)
}

// routeEndpoints has s1 answer for all endpoint addresses and n1 send packets for them there, by s1's own address, so that no
// endpoint's first packet waits for ARP.
func (s *site) routeEndpoints() error {
	via, _ := s.server.Address("primary", lab.IPv4)
	dst := endpointRange
	local := func(h *netlink.Handle) error {
		lo, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		return h.RouteAdd(&netlink.Route{
			LinkIndex: lo.Attrs().Index, Dst: ipNet(dst), Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST,
		})
	}
	forward := func(h *netlink.Handle) error { return h.RouteAdd(&netlink.Route{Dst: ipNet(dst), Gw: via.AsSlice()}) }
	for _, step := range []struct {
		host lab.Host
		do   func(*netlink.Handle) error
	}{{s.server, local}, {s.node, forward}} {
		err := step.host.Do(func() error {
			h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
			if err != nil {
				return err
			}
			defer h.Close()
			return step.do(h)
		})
		if err != nil {
			return fmt.Errorf("%s: route for the endpoints' addresses %s: %w", step.host.Name(), dst, err)
		}
	}
	return nil
}

// clusterIP is where a Service is connected to.
func (svc *service) clusterIP() netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(svc.object.Spec.ClusterIP), servicePort)
}

// nodePort is where a Service is connected to at n1.
func (s *site) nodePort(svc *service) netip.AddrPort {
	a, _ := s.node.Address("primary", lab.IPv4)
	return netip.AddrPortFrom(a, uint16(svc.object.Spec.Ports[0].NodePort))
}

// onNFTables reports whether the mode's rules are nf_tables', so that their generation tells of each change.
func (s *site) onNFTables(mode lab.Mode) bool {
	return mode == lab.NFTables || mode == lab.IPTables && nftVariant(s.machine)
}
