package probe

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// segmentsOf returns the TCP segments of a capture.
func segmentsOf(t *testing.T, capture []byte) (found []Segment, flags []*layers.TCP) {
	t.Helper()
	r, err := pcapgo.NewNgReader(bytes.NewReader(capture), pcapgo.DefaultNgReaderOptions)
	require.NoError(t, err)
	for {
		data, _, err := r.ReadPacketData()
		if err == io.EOF {
			return found, flags
		}
		require.NoError(t, err)
		p := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.Default)
		tcp, _ := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if tcp == nil {
			continue
		}
		source, _ := netip.AddrFromSlice(p.NetworkLayer().NetworkFlow().Src().Raw())
		target, _ := netip.AddrFromSlice(p.NetworkLayer().NetworkFlow().Dst().Raw())
		found = append(found, Segment{Source: netip.AddrPortFrom(source, uint16(tcp.SrcPort)), Target: netip.AddrPortFrom(target, uint16(tcp.DstPort)),
			Seq: tcp.Seq, Ack: tcp.Ack, Length: len(tcp.Payload)})
		flags = append(flags, tcp)
	}
}

// onWire is what a packet shows of the segment.
func (s Segment) onWire() Segment {
	return Segment{Source: s.Source, Target: s.Target, Seq: s.Seq, Ack: s.Ack, Length: s.Length}
}

// Without NAT a segment out of the window reaches the client's own socket, which answers with an ACK and lives on.
func TestInject(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	tp.serve(t, "s1", "tcp", 8080)
	for _, addr := range []netip.Addr{server4, server6} {
		for _, position := range []Position{Old, Future} {
			t.Run(addr.String()+" "+string(position), func(t *testing.T) {
				c := tp.hold(t, netip.AddrPortFrom(addr, 8080), patient)
				state, err := c.Bulk(t.Context(), 2<<20)
				require.NoError(t, err)
				require.Equal(t, Alive, state)
				capture, err := StartCapture(t.Context(), tp.client, CaptureOptions{Interfaces: []string{"eth0"}})
				require.NoError(t, err)
				seg, err := Inject(t.Context(), tp.server, c, position, patient)
				require.NoError(t, err)
				t.Log(seg)
				assert.Equal(t, "ack", seg.Answer)
				assert.Equal(t, c.Address(), seg.Source)
				assert.Equal(t, c.Source(), seg.Target)
				if position == Old {
					assert.Less(t, seg.Distance, int64(-2<<20))
				} else {
					assert.Greater(t, seg.Distance, int64(futureDistance))
				}
				state, err = c.Exchange(t.Context(), 1000)
				require.NoError(t, err)
				assert.Equal(t, Alive, state)
				file, err := capture.Stop()
				require.NoError(t, err)
				segments, _ := segmentsOf(t, file)
				assert.Contains(t, segments, seg.onWire())
				c.Close()
			})
		}
	}
}

// Behind DNAT a segment that conntrack takes for INVALID reaches the client with the server's own address. The client knows
// no such connection and answers with a RST, which hits the server: kubernetes/kubernetes#74839.
func TestInjectBehindDNAT(t *testing.T) {
	service4, service6 := netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00:96::1")
	oldAnswer, oldState := "ack", Alive
	if kernelBefore(t, 6, 1) {
		oldAnswer, oldState = "rst", WasReset
	}
	for _, c := range []struct {
		server, service netip.Addr
		position        Position
		liberal         bool
		answer          string
		state           State
	}{
		{server4, service4, Future, false, "rst", WasReset},
		{server6, service6, Future, false, "rst", WasReset},
		{server4, service4, Future, true, "ack", Alive},
		{server6, service6, Future, true, "ack", Alive},
		{server4, service4, Old, false, oldAnswer, oldState},
		{server6, service6, Old, false, oldAnswer, oldState},
		{server4, service4, Old, true, "ack", Alive},
	} {
		name := c.service.String() + " " + string(c.position)
		if c.liberal {
			name += " nf_conntrack_tcp_be_liberal"
		}
		t.Run(name, func(t *testing.T) {
			tp := newTopology(t)
			noLeak(t)
			tp.serve(t, "s1", "tcp", 8080)
			fw := newFirewall(t, tp.router)
			service := netip.AddrPortFrom(c.service, 80)
			fw.dnat(service, netip.AddrPortFrom(c.server, 8080))
			fw.load()
			if c.liberal {
				tp.router.sysctl(t, "net/netfilter/nf_conntrack_tcp_be_liberal", "1")
			}
			conn := tp.hold(t, service, patient)
			assert.Equal(t, netip.AddrPortFrom(c.server, 8080), conn.Address())
			_, err := conn.Bulk(t.Context(), 2<<20)
			require.NoError(t, err)
			capture, err := StartCapture(t.Context(), tp.client, CaptureOptions{})
			require.NoError(t, err)
			seg, err := Inject(t.Context(), tp.server, conn, c.position, patient)
			require.NoError(t, err)
			t.Log(seg)
			assert.Equal(t, c.answer, seg.Answer)
			state, err := conn.Exchange(t.Context(), 1)
			require.NoError(t, err)
			assert.Equal(t, c.state, state)

			file, err := capture.Stop()
			require.NoError(t, err)
			want := seg.onWire()
			if c.state == Alive { // translated like the rest
				want.Source = service
			}
			segments, _ := segmentsOf(t, file)
			assert.Contains(t, segments, want)
		})
	}
}

// kernelBefore reports whether the running kernel is older than major.minor.
func kernelBefore(t *testing.T, major, minor int) bool {
	t.Helper()
	var name unix.Utsname
	require.NoError(t, unix.Uname(&name))
	var haveMajor, haveMinor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &haveMajor, &haveMinor)
	require.NoError(t, err)
	return haveMajor < major || haveMajor == major && haveMinor < minor
}

func TestInjectErrors(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	s := tp.serve(t, "s1", "tcp", 8080)
	c := tp.hold(t, netip.AddrPortFrom(server4, 8080), patient)
	_, err := Inject(t.Context(), tp.server, c, Old, impatient)
	assert.ErrorContains(t, err, "bytes first")
	_, err = Inject(t.Context(), tp.server, c, "past", impatient)
	assert.ErrorContains(t, err, "past")
	require.NoError(t, s.Close())
	_, err = Inject(t.Context(), tp.server, c, Future, impatient)
	assert.ErrorContains(t, err, "the connection is closed")
}
