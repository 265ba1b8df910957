package probe

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func (tp topology) hold(t *testing.T, target netip.AddrPort, timeout time.Duration) *Conn {
	t.Helper()
	c, o, err := Hold(t.Context(), tp.client, Request{Network: "tcp", Target: target, Timeout: timeout})
	require.NoError(t, err)
	require.Equal(t, Reachable, o.Kind, o)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestHold(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	for _, addr := range []netip.Addr{server4, server6} {
		s, err := Serve(tp.server, "s1", "tcp", 8080)
		require.NoError(t, err)
		c := tp.hold(t, netip.AddrPortFrom(addr, 8080), patient)
		assert.Equal(t, "s1", c.Endpoint())
		assert.Equal(t, c.Local(), c.Source(), "no NAT on the way")
		assert.Equal(t, netip.AddrPortFrom(addr, 8080), c.Address())
		for _, n := range []int{0, 1, 1000, 3 << 20} {
			state, err := c.Exchange(t.Context(), n)
			require.NoError(t, err)
			require.Equal(t, Alive, state, n)
		}
		state, err := c.Bulk(t.Context(), 5<<20)
		require.NoError(t, err)
		assert.Equal(t, Alive, state)
		assert.Equal(t, Alive, c.State())

		require.NoError(t, s.Close())
		assert.Eventually(t, func() bool { return c.State() == Closed }, patient, 10*time.Millisecond)
		state, err = c.Exchange(t.Context(), 1)
		require.NoError(t, err)
		assert.Equal(t, Closed, state)
		require.NoError(t, c.Close())
	}
}

func TestHoldNotReachable(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	c, o, err := Hold(t.Context(), tp.client, Request{Network: "tcp", Target: netip.AddrPortFrom(server4, 1), Timeout: patient})
	require.NoError(t, err)
	assert.Nil(t, c)
	assert.Equal(t, "refused (rst)", o.String())
	_, _, err = Hold(t.Context(), tp.client, Request{Network: "udp", Target: netip.AddrPortFrom(server4, 1), Timeout: patient})
	assert.Error(t, err)
}

// A connection is reset by a firewall, both while it is idle and in the midst of an exchange.
func TestHoldReset(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	tp.serve(t, "s1", "tcp", 8080)
	for _, n := range []int{1, 4 << 20} {
		c := tp.hold(t, netip.AddrPortFrom(server4, 8080), patient)
		fw := newFirewall(t, tp.router)
		fw.forward(unix.IPPROTO_TCP, 8080, rejectWithReset())
		fw.load()
		state, err := c.Exchange(t.Context(), n)
		require.NoError(t, err)
		assert.Equal(t, WasReset, state)
		assert.Equal(t, WasReset, c.State())
		fw.conn.DelTable(fw.table)
		fw.load()
		state, err = c.Exchange(t.Context(), 1)
		require.NoError(t, err)
		assert.Equal(t, WasReset, state, "a reset is for ever")
		c.Close()
	}
}

// An exchange that stands still may be taken up again when the path is.
func TestHoldStall(t *testing.T) {
	tp := newTopology(t)
	tp.serve(t, "s1", "tcp", 8080)
	c := tp.hold(t, netip.AddrPortFrom(server4, 8080), patient)
	c.request.Timeout = impatient
	fw := newFirewall(t, tp.router)
	fw.forward(unix.IPPROTO_TCP, 8080, drop())
	fw.load()
	for _, n := range []int{100, 2 << 20} {
		state, err := c.Exchange(t.Context(), n)
		require.NoError(t, err)
		assert.Equal(t, Stalled, state)
	}
	fw.conn.DelTable(fw.table)
	fw.load()
	assert.Eventually(t, func() bool {
		state, err := c.Exchange(t.Context(), 1000)
		return err == nil && state == Alive
	}, patient, time.Millisecond)
}

func TestHoldContext(t *testing.T) {
	tp := newTopology(t)
	tp.serve(t, "s1", "tcp", 8080)
	c := tp.hold(t, netip.AddrPortFrom(server4, 8080), time.Hour)
	tp.server.do(t, func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(l)
	})
	ctx, cancel := context.WithTimeout(t.Context(), impatient)
	defer cancel()
	_, err := c.Exchange(ctx, 4<<20)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestServer(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	s, err := Serve(tp.server, "s1", "tcp", 0)
	require.NoError(t, err)
	assert.Equal(t, "s1", s.Name())
	assert.NotZero(t, s.Port())
	target := func(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, uint16(s.Port())) }
	a, b, c := tp.hold(t, target(server4), patient), tp.hold(t, target(server4), patient), tp.hold(t, target(server6), patient)
	assert.Equal(t, 3, s.Open())
	assert.Equal(t, map[netip.Addr]int{client4: 2, client6: 1}, s.OpenBySource())
	require.NoError(t, a.Close())
	require.NoError(t, c.Close())
	assert.Eventually(t, func() bool { return s.Open() == 1 }, patient, time.Millisecond)

	_, err = Serve(tp.server, "s2", "tcp", s.Port())
	assert.ErrorIs(t, err, unix.EADDRINUSE)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "twice does no harm")
	assert.Zero(t, s.Open())
	assert.Eventually(t, func() bool { return b.State() == Closed }, patient, time.Millisecond)
	_, err = Serve(tp.server, "s1", "icmp", 0)
	assert.Error(t, err)
}

// A UDP server answers from the address that it was asked at.
func TestServerAnswersFromAskedAddress(t *testing.T) {
	tp := newTopology(t)
	tp.server.address(t, "eth0", "10.0.2.9/24", "fd00:2::9/64")
	tp.serve(t, "s1", "udp", 53)
	for _, addr := range []string{"10.0.2.2", "10.0.2.9", "fd00:2::2", "fd00:2::9"} {
		o, err := Dial(t.Context(), tp.client, Request{Network: "udp", Target: netip.AddrPortFrom(netip.MustParseAddr(addr), 53), Timeout: patient})
		require.NoError(t, err)
		assert.Equal(t, Reachable, o.Kind, addr)
	}
}
