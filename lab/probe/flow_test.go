package probe

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestStream(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	s, err := Serve(tp.server, "s1", "udp", 53)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	f, err := Stream(ctx, tp.client, Request{Network: "udp", Target: netip.AddrPortFrom(server6, 53), Source: netip.AddrPortFrom(client6, 5353), Timeout: patient}, time.Millisecond)
	require.NoError(t, err)
	defer f.Close()
	c, err := f.Wait(ctx, func(c FlowCount) bool { return c.Answered["s1"] >= 10 })
	require.NoError(t, err)
	assert.GreaterOrEqual(t, c.Sent, 10)
	assert.Equal(t, "s1", c.Last)
	first := f.Between(1, 1)
	require.Len(t, first, 1)
	assert.Equal(t, Outcome{Kind: Reachable, Endpoint: "s1"}, first[0].Outcome)
	assert.Empty(t, f.Between(1, 0))

	const refused = "refused (icmp port-unreachable)"
	require.NoError(t, s.Close())
	before := f.Count()
	_, err = f.Wait(ctx, func(c FlowCount) bool { return c.Since(before).Errors[refused] >= 10 })
	require.NoError(t, err)

	s, err = Serve(tp.server, "s2", "udp", 53)
	require.NoError(t, err)
	defer s.Close()
	c, err = f.Wait(ctx, func(c FlowCount) bool { return c.Answered["s2"] >= 10 })
	require.NoError(t, err)
	assert.Equal(t, "s2", c.Last)

	fw := newFirewall(t, tp.client)
	fw.output(unix.IPPROTO_UDP, 53, drop())
	fw.load()
	_, err = f.Wait(ctx, func(c FlowCount) bool { return c.Errors["unreachable (EPERM)"] >= 3 })
	require.NoError(t, err)
	require.NoError(t, f.Close())
	over := f.Count()
	assert.Equal(t, over, f.Count())
}

func TestStreamEndsWithContext(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	ctx, cancel := context.WithCancel(t.Context())
	f, err := Stream(ctx, tp.client, Request{Network: "udp", Target: netip.AddrPortFrom(server4, 53), Timeout: patient}, time.Millisecond)
	require.NoError(t, err)
	cancel()
	_, err = f.Wait(ctx, func(FlowCount) bool { return false })
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, f.Close())
}

func TestSpread(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	s := tp.serve(t, "s1", "tcp", 8080)
	tp.serve(t, "s1", "udp", 8080)
	tcp := Request{Network: "tcp", Target: netip.AddrPortFrom(server4, 8080), Timeout: patient}
	d, err := Spread(t.Context(), tp.client, tcp, 20, true)
	require.NoError(t, err)
	assert.Equal(t, "s1 20", d.String())
	assert.Len(t, d.Conns, 20)
	assert.Equal(t, 20, s.Open())
	d.Close()
	assert.Eventually(t, func() bool { return s.Open() == 0 }, patient, time.Millisecond)

	for _, r := range []Request{tcp, {Network: "udp", Target: tcp.Target, Timeout: patient}} {
		d, err = Spread(t.Context(), tp.client, r, 20, false)
		require.NoError(t, err)
		assert.Equal(t, map[string]int{"s1": 20}, d.Endpoints)
		assert.Empty(t, d.Conns)
	}
	d, err = Spread(t.Context(), tp.client, Request{Network: "tcp", Target: netip.AddrPortFrom(server6, 1), Timeout: patient}, 3, true)
	require.NoError(t, err)
	assert.Equal(t, "refused (rst) 3", d.String())
}
