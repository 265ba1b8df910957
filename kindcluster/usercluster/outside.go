package usercluster

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"kplab/lab"
	"kplab/lab/probe"
	"kplab/lab/remote"
)

// outsideTimeout bounds the one try to reach a node from this machine.
const outsideTimeout = 3 * time.Second

// lookOutside finds out whether this machine is a client outside the cluster: one that reaches the InternalIPs of both nodes, in each family.
// A port of the node's pod is tried, or where there is none the kubelet's; anything but silence will do.
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
	var g errgroup.Group
	var seen [2][2]string // why, by family and node
	for i, family := range []lab.Family{lab.IPv4, lab.IPv6} {
		for j, name := range []string{"n1", "n2"} {
			g.Go(func() (err error) {
				seen[i][j], err = f.tryNode(ctx, name, family)
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, family := range []lab.Family{lab.IPv4, lab.IPv6} {
		if why := cmp.Or(seen[i][0], seen[i][1]); why != "" {
			f.missing[fmt.Sprintf("ext/%d", family)] = why
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

// tryNode returns why this machine does not reach a node in a family, and notes by which address it is seen there.
func (f *Fixture) tryNode(ctx context.Context, name string, family lab.Family) (why string, err error) {
	h := f.hosts[name]
	to, ok := h.Address("primary", family)
	if !ok {
		return "", nil // there is nothing to reach
	}
	port := f.nodes[name].KubeletPort
	if h.client != nil {
		if port, err = h.client.Serve(ctx, name, "tcp", 0); err != nil {
			return "", err
		}
	}
	if port == 0 {
		return fmt.Sprintf("this machine has no port of node %s to try", f.nodes[name].Name), nil
	}
	o, err := probe.Dial(ctx, f.outside, probe.Request{Network: "tcp", Target: netip.AddrPortFrom(to, uint16(port)), Timeout: outsideTimeout})
	if err != nil {
		return "", err
	}
	f.outside.seenAs(o.Source.Addr())
	// The kubelet takes the connection and does not understand the question.
	if o.Kind == probe.Unreachable || o.Kind == probe.Timeout && o.Detail == "" {
		return fmt.Sprintf("this machine does not reach %s of node %s: %s", to, f.nodes[name].Name, o), nil
	}
	return "", nil
}

// seenAs adds an address by which this machine is seen: it may be that of a NAT in between.
func (o *outside) seenAs(a netip.Addr) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if a.IsValid() && !slices.Contains(o.owned, a) {
		o.owned = append(o.owned, a)
	}
}
