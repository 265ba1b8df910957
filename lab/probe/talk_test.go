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

func TestTalk(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	tp.serve(t, "s1", "tcp", 8080)
	to := netip.AddrPortFrom(server4, 8080)
	used, idle := tp.hold(t, to, patient), tp.hold(t, to, patient)
	talk := StartTalk(t.Context(), []*Conn{used}, time.Millisecond)
	state, err := used.Exchange(t.Context(), 1000)
	require.NoError(t, err)
	assert.Equal(t, Alive, state, "takes turns with the talk")

	// Nobody asks from here on: it is the talk that meets the reset.
	fw := newFirewall(t, tp.client)
	fw.output(unix.IPPROTO_TCP, 8080, rejectWithReset())
	fw.load()
	assert.Eventually(t, func() bool { return used.State() == WasReset }, patient, time.Millisecond)
	assert.Equal(t, Alive, idle.State())
	require.NoError(t, talk.Close())
}

func TestPush(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	server := tp.serve(t, "s1", "tcp", 8080)
	c := tp.hold(t, netip.AddrPortFrom(server4, 8080), patient)
	talk := StartPush(t.Context(), []*Conn{c}, time.Millisecond)
	state, err := c.Exchange(t.Context(), 1000)
	require.NoError(t, err)
	assert.Equal(t, Alive, state, "takes turns with the push")

	// It is a segment of the server's that meets the reset.
	fw := newFirewall(t, tp.server)
	fw.output(unix.IPPROTO_TCP, int(c.Local().Port()), rejectWithReset())
	fw.load()
	assert.Eventually(t, func() bool { return server.Open() == 0 }, patient, time.Millisecond)
	require.NoError(t, talk.Close())
}

func TestTalkEndsWithContext(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	tp.serve(t, "s1", "tcp", 8080)
	c := tp.hold(t, netip.AddrPortFrom(server4, 8080), patient)
	ctx, cancel := context.WithCancel(t.Context())
	talk := StartTalk(ctx, []*Conn{c}, time.Millisecond)
	cancel()
	talk.running.Wait()
	require.NoError(t, talk.Err())
	require.NoError(t, talk.Close())
}
