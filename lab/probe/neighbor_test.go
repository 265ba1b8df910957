package probe

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
)

func (n *namespace) mac(t *testing.T, link string) (mac net.HardwareAddr) {
	t.Helper()
	n.do(t, func() error {
		l, err := netlink.LinkByName(link)
		if err == nil {
			mac = l.Attrs().HardwareAddr
		}
		return err
	})
	return mac
}

func TestNeighbor(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	tp.router.address(t, "lo", "10.96.0.1/32", "fd00:96::1/128") // as kube-ipvs0 holds a Service's addresses
	router := "answered by " + tp.router.mac(t, "eth0").String()
	for _, c := range []struct {
		target, want string
		resolve      func(context.Context, Netns, string, netip.Addr, time.Duration) (Resolution, error)
	}{
		{"10.0.1.1", router, ARP},
		{"10.96.0.1", router, ARP},
		{"10.0.1.77", "silent", ARP},
		{"fd00:1::1", router, NDP},
		{"fd00:1::77", "silent", NDP},
	} {
		r, err := c.resolve(t.Context(), tp.client, "eth0", netip.MustParseAddr(c.target), impatient)
		require.NoError(t, err)
		assert.Equal(t, c.want, r.String(), c.target)
	}

	tp.router.sysctl(t, "net/ipv4/conf/all/arp_ignore", "1") // strictARP
	r, err := ARP(t.Context(), tp.client, "eth0", netip.MustParseAddr("10.96.0.1"), impatient)
	require.NoError(t, err)
	assert.False(t, r.Answered())
}

// Two machines that claim one address both count.
func TestNeighborDuplicate(t *testing.T) {
	client, bridge, a, b := newNamespace(t), newNamespace(t), newNamespace(t), newNamespace(t)
	bridge.do(t, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "br0"
		br := &netlink.Bridge{LinkAttrs: attrs}
		if err := netlink.LinkAdd(br); err != nil {
			return err
		}
		return netlink.LinkSetUp(br)
	})
	for port, n := range map[string]*namespace{"client": client, "a": a, "b": b} {
		connectLinks(t, n, "eth0", bridge, port)
		bridge.do(t, func() error {
			br, err := netlink.LinkByName("br0")
			if err != nil {
				return err
			}
			l, err := netlink.LinkByName(port)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetMaster(l, br); err != nil {
				return err
			}
			return netlink.LinkSetUp(l)
		})
	}
	client.address(t, "eth0", "10.0.1.2/24", "fd00:1::2/64")
	a.address(t, "eth0", "10.0.1.9/24", "fd00:1::9/64")
	b.address(t, "eth0", "10.0.1.9/24", "fd00:1::9/64")
	want := []string{a.mac(t, "eth0").String(), b.mac(t, "eth0").String()}
	for _, c := range []struct {
		target  string
		resolve func(context.Context, Netns, string, netip.Addr, time.Duration) (Resolution, error)
	}{{"10.0.1.9", ARP}, {"fd00:1::9", NDP}} {
		assert.Eventually(t, func() bool { // a new bridge port may not forward yet
			r, err := c.resolve(t.Context(), client, "eth0", netip.MustParseAddr(c.target), impatient)
			require.NoError(t, err)
			var got []string
			for _, m := range r.MACs {
				got = append(got, m.String())
			}
			return assert.ElementsMatch(new(testing.T), want, got)
		}, patient, time.Millisecond, c.target)
	}
}

func TestNeighborErrors(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	_, err := ARP(t.Context(), tp.client, "eth0", router6, impatient)
	assert.Error(t, err)
	_, err = NDP(t.Context(), tp.client, "eth0", router4, impatient)
	assert.Error(t, err)
	_, err = ARP(t.Context(), tp.client, "eth9", router4, impatient)
	assert.ErrorContains(t, err, "eth9")
	_, err = ARP(t.Context(), tp.client, "lo", router4, impatient)
	assert.Error(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = ARP(ctx, tp.client, "eth0", router4, time.Hour)
	assert.ErrorIs(t, err, context.Canceled)
}
