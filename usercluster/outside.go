package usercluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"kplab/lab"
	"kplab/lab/probe"
	"kplab/lab/remote"
)

// outsideTimeout bounds the one try to reach a node from this machine.
const outsideTimeout = 3 * time.Second

// lookOutside finds out whether this machine is a client outside the cluster: one that reaches the InternalIPs of both nodes, in each family.
// A port of the node's pod is tried, and the kubelet's; anything but silence will do.
func (f *Fixture) lookOutside(ctx context.Context) error {
	here, err := remote.Describe()
	if err != nil {
		return err
	}
	f.outside = &outside{addresses: map[string][]netip.Addr{"localhost": {netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}}}
	for _, a := range here.Addresses {
		if !a.IsLoopback() && !a.IsLinkLocalUnicast() {
			f.outside.owned = append(f.outside.owned, a)
		}
	}
	for _, n := range f.nodes {
		if slices.ContainsFunc(n.Addresses, func(a netip.Addr) bool { return slices.Contains(here.Addresses, a) }) {
			f.missing["ext"] = fmt.Sprintf("this machine is node %s itself, and no client outside", n.Name)
			return nil
		}
	}
	if here.RawSockets != "" {
		f.missing["ext"] = fmt.Sprintf("probes from this machine need raw sockets to tell a refusal from an ICMP error: run kplab as root (%s)", here.RawSockets)
		return nil
	}
	for _, family := range []lab.Family{lab.IPv4, lab.IPv6} {
		for _, name := range []string{"n1", "n2"} {
			if err := f.tryNode(ctx, name, family); err != nil {
				return err
			}
		}
	}
	for _, h := range []string{"n1", "n2"} {
		if c := f.hosts[h].client; c != nil {
			if err := c.CloseServers(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// tryNode notes why this machine does not reach a node in a family, or by which address it is seen there.
func (f *Fixture) tryNode(ctx context.Context, name string, family lab.Family) error {
	absent := fmt.Sprintf("ext/%d", family)
	h := f.hosts[name]
	to, ok := h.Address("primary", family)
	if !ok || f.missing[absent] != "" {
		return nil // there is nothing to reach
	}
	var ports []int
	if h.client != nil {
		port, err := h.client.Serve(ctx, name, "tcp", 0)
		if err != nil {
			return err
		}
		ports = append(ports, port)
	}
	if port := f.nodes[name].KubeletPort; port != 0 {
		ports = append(ports, port)
	}
	outcomes, errs := make([]probe.Outcome, len(ports)), make([]error, len(ports))
	var wg sync.WaitGroup
	for i, port := range ports {
		wg.Go(func() {
			outcomes[i], errs[i] = probe.Dial(ctx, f.outside, probe.Request{Network: "tcp", Target: netip.AddrPortFrom(to, uint16(port)), Timeout: outsideTimeout})
		})
	}
	wg.Wait()
	why := "no port to try"
	reached := false
	for i, o := range outcomes {
		if errs[i] != nil {
			return errs[i]
		}
		if o.Source.IsValid() && !slices.Contains(f.outside.owned, o.Source.Addr()) {
			f.outside.owned = append(f.outside.owned, o.Source.Addr()) // that of a NAT in between
		}
		reached = reached || o.Kind == probe.Reachable || o.Kind == probe.Refused || o.Kind == probe.Reset
		why = o.String()
	}
	if !reached {
		f.missing[absent] = fmt.Sprintf("this machine does not reach %s of node %s: %s", to, f.nodes[name].Name, why)
	}
	return nil
}
