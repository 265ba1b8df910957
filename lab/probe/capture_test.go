package probe

import (
	"bytes"
	"context"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCapture(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	tp.serve(t, "s1", "tcp", 8080)
	c, err := StartCapture(t.Context(), tp.router, CaptureOptions{})
	require.NoError(t, err)
	o, err := Dial(t.Context(), tp.client, Request{Network: "tcp", Target: netip.AddrPortFrom(server4, 8080), Timeout: patient})
	require.NoError(t, err)
	require.Equal(t, Reachable, o.Kind)
	file, err := c.Stop()
	require.NoError(t, err)
	again, err := c.Stop()
	require.NoError(t, err)
	assert.Equal(t, file, again)

	segments, flags := segmentsOf(t, file)
	var syns []netip.AddrPort
	for i, s := range segments {
		if flags[i].SYN && !flags[i].ACK {
			syns = append(syns, s.Target)
		}
	}
	assert.Equal(t, []netip.AddrPort{netip.AddrPortFrom(server4, 8080), netip.AddrPortFrom(server4, 8080)}, syns, "in by eth0, out by eth1")
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions)
	require.NoError(t, err)
	_, _, err = r.ReadPacketData()
	require.NoError(t, err)
	var names []string
	for i := range r.NInterfaces() {
		iface, err := r.Interface(i)
		require.NoError(t, err)
		names = append(names, iface.Name)
	}
	assert.ElementsMatch(t, []string{"lo", "eth0", "eth1"}, names)
}

func TestCaptureBounds(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	tp.serve(t, "s1", "tcp", 8080)
	conn := tp.hold(t, netip.AddrPortFrom(server4, 8080), patient)
	ctx, cancel := context.WithCancel(t.Context())
	c, err := StartCapture(ctx, tp.client, CaptureOptions{Interfaces: []string{"eth0"}, SnapLen: 60, Limit: 2000})
	require.NoError(t, err)
	for range 50 {
		state, err := conn.Exchange(t.Context(), 100)
		require.NoError(t, err)
		require.Equal(t, Alive, state)
	}
	cancel()
	file, err := c.Stop()
	require.NoError(t, err)
	assert.LessOrEqual(t, len(file), 2000)
	held, dropped := c.Packets()
	assert.Positive(t, held)
	assert.Positive(t, dropped)

	_, err = StartCapture(t.Context(), tp.client, CaptureOptions{Interfaces: []string{"eth9"}})
	assert.ErrorContains(t, err, "eth9")
}

// On loopback each packet is seen once.
func TestCaptureLoopback(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	c, err := StartCapture(t.Context(), tp.client, CaptureOptions{Interfaces: []string{"lo"}})
	require.NoError(t, err)
	o, err := Dial(t.Context(), tp.client, Request{Network: "tcp", Target: netip.MustParseAddrPort("[::1]:1"), Timeout: patient})
	require.NoError(t, err)
	require.Equal(t, "refused (rst)", o.String())
	file, err := c.Stop()
	require.NoError(t, err)
	segments, _ := segmentsOf(t, file)
	assert.Len(t, segments, 2, "SYN and RST")
}
