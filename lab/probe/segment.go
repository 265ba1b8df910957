package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// Position says where a crafted segment lies in its connection's sequence space.
type Position string

const (
	// Old is the oldest byte that the server sent and the client acknowledged, further back than the largest window that
	// the client ever offered. Kernels before 6.1 take it for INVALID (kernel commit 6e250dcbff1d).
	Old Position = "old"
	// Future is 50 MiB beyond any window that the client ever offered: INVALID for conntrack on every kernel.
	Future Position = "future"
)

const (
	futureDistance = 50 << 20
	segmentPayload = 64 // bytes of data in a crafted segment
)

// Segment is a crafted TCP segment, as it left the server, before any NAT.
type Segment struct {
	Position Position
	Source   netip.AddrPort // the server
	Target   netip.AddrPort // the client as the server sees it
	Seq, Ack uint32         // Ack is what the server expects next, so that a RST in answer to the segment hits the connection
	Length   int            // bytes of data
	Distance int64          // of Seq from the server's next sequence number: negative for Old
	Answer   string         // what came to the server from the client's side within the wait: "rst", "ack" or "" for nothing
}

func (s Segment) String() string {
	answer := s.Answer
	if answer == "" {
		answer = "nothing"
	}
	return fmt.Sprintf("%s segment %s > %s seq %d (%+d) ack %d length %d: answered by %s",
		s.Position, s.Source, s.Target, s.Seq, s.Distance, s.Ack, s.Length, answer)
}

// Inject sends, from the server's namespace, a TCP segment that belongs to c but lies outside of its window, and returns
// when the client's side has answered it or wait is over. For Old the server must have sent enough before: see
// [Conn.Bulk]; 1 MiB will do. Whether the connection lives is for the caller to see with [Conn.Exchange].
//
// The sequence numbers come from watching one exchange of one byte on an AF_PACKET socket in the server's namespace.
func Inject(ctx context.Context, server Netns, c *Conn, position Position, wait time.Duration) (Segment, error) {
	seg, err := inject(ctx, server, c, position, wait)
	if err != nil {
		return Segment{}, fmt.Errorf("inject %s segment into %s: %w", position, c.request, err)
	}
	return seg, nil
}

func inject(ctx context.Context, server Netns, c *Conn, position Position, wait time.Duration) (Segment, error) {
	if position != Old && position != Future {
		return Segment{}, fmt.Errorf("unknown position: known are %s, %s", Old, Future)
	}
	if c.request.Network != "tcp" || c.who.Endpoint == "" {
		return Segment{}, errors.New("not a TCP connection to a probe server")
	}
	received, window, err := c.received()
	if err != nil {
		return Segment{}, err
	}
	// Twice the window: conntrack counts what was selectively acknowledged beyond it too.
	if need := 2 * window; position == Old && received < need+segmentPayload {
		return Segment{}, fmt.Errorf("the server has sent %d bytes and the client's window may have been up to %d: have it send %d bytes first",
			received, window, need+segmentPayload-received)
	}

	s, err := openPacket(server, 0, unix.SOCK_DGRAM, unix.ETH_P_ALL)
	if err != nil {
		return Segment{}, err
	}
	defer s.file.Close()
	release := interruptOn(ctx, s.file)
	defer release()
	w := &connWatch{socket: s, server: c.Address(), client: c.Source()}
	if state, err := c.Exchange(ctx, 1); err != nil || state != Alive {
		return Segment{}, errors.Join(fmt.Errorf("the connection is %s before the segment", state), err)
	}
	err = w.until(ctx, time.Now().Add(c.request.Timeout), w.settled)
	if err != nil {
		return Segment{}, fmt.Errorf("the exchange did not come to rest on %s > %s as seen by the server: %w", w.server, w.client, err)
	}

	seg := Segment{Position: position, Source: w.server, Target: w.client, Ack: w.clientNext, Length: segmentPayload}
	if position == Old {
		seg.Distance = -min(received, 1<<30) // comparisons of sequence numbers reach 2^31
	} else {
		seg.Distance = window + futureDistance
	}
	seg.Seq = w.serverNext + uint32(seg.Distance)
	w.answer = ""
	if err := seg.send(server); err != nil {
		return Segment{}, err
	}
	err = w.until(ctx, time.Now().Add(wait), func() bool { return w.answer != "" })
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return Segment{}, err
	}
	seg.Answer = w.answer
	return seg, nil
}

// received returns how many bytes the client has received and the largest window it can have offered.
func (c *Conn) received() (bytes, window int64, err error) {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var info *unix.TCPInfo
	var buffer int
	var infoErr, bufferErr error
	err = raw.Control(func(fd uintptr) {
		info, infoErr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		buffer, bufferErr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF)
	})
	if err := errors.Join(err, os.NewSyscallError("getsockopt TCP_INFO", infoErr), os.NewSyscallError("getsockopt SO_RCVBUF", bufferErr)); err != nil {
		return 0, 0, err
	}
	return int64(info.Bytes_received), int64(buffer), nil
}

// send puts the segment on the wire through a raw socket with its own IP header.
func (s Segment) send(ns Netns) error {
	var ip interface {
		gopacket.NetworkLayer
		gopacket.SerializableLayer
	}
	if s.Source.Addr().Is4() {
		ip = &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: s.Source.Addr().AsSlice(), DstIP: s.Target.Addr().AsSlice()}
	} else {
		ip = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: s.Source.Addr().AsSlice(), DstIP: s.Target.Addr().AsSlice()}
	}
	tcp := &layers.TCP{SrcPort: layers.TCPPort(s.Source.Port()), DstPort: layers.TCPPort(s.Target.Port()),
		Seq: s.Seq, Ack: s.Ack, ACK: true, PSH: true, Window: 512}
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		return err
	}
	packet, err := serialize(ip, tcp, gopacket.Payload(make([]byte, s.Length)))
	if err != nil {
		return err
	}
	fd, err := open(ns, domain(s.Source.Addr()), unix.SOCK_RAW, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// A raw IPv6 socket takes the port for a protocol and wants none.
	return os.NewSyscallError("sendto", unix.Sendto(fd, packet, 0, sockaddr(netip.AddrPortFrom(s.Target.Addr(), 0))))
}

// connWatch follows one TCP connection on a packet socket in the server's namespace.
type connWatch struct {
	socket         *packetSocket
	server, client netip.AddrPort // as the server sees them

	seenServer, seenClient bool
	serverNext, clientNext uint32 // the sequence number after the last byte sent
	serverAck, clientAck   uint32 // the last acknowledgement sent by
	answer                 string // kind of the client's last segment
}

// settled reports whether both sides have sent and each has acknowledged all that the other sent.
func (w *connWatch) settled() bool {
	return w.seenServer && w.seenClient && w.clientAck == w.serverNext && w.serverAck == w.clientNext
}

// until follows the connection until done says so, the deadline is over (os.ErrDeadlineExceeded) or ctx ends.
func (w *connWatch) until(ctx context.Context, deadline time.Time, done func() bool) error {
	w.socket.file.SetReadDeadline(deadline)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	buf := make([]byte, 128<<10)
	err := w.socket.raw.Read(func(fd uintptr) bool {
		return w.socket.receive(fd, buf, func(p packet) bool {
			w.follow(p.data)
			return done()
		})
	})
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// follow takes in an IP packet.
func (w *connWatch) follow(b []byte) {
	first := layers.LayerTypeIPv4
	if len(b) > 0 && b[0]>>4 == 6 {
		first = layers.LayerTypeIPv6
	}
	p := gopacket.NewPacket(b, first, gopacket.DecodeOptions{NoCopy: true, Lazy: true})
	tcp, _ := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if tcp == nil {
		return
	}
	var source, target netip.Addr
	switch ip := p.NetworkLayer().(type) {
	case *layers.IPv4:
		source, _ = netip.AddrFromSlice(ip.SrcIP)
		target, _ = netip.AddrFromSlice(ip.DstIP)
	case *layers.IPv6:
		source, _ = netip.AddrFromSlice(ip.SrcIP)
		target, _ = netip.AddrFromSlice(ip.DstIP)
	}
	from, to := netip.AddrPortFrom(source.Unmap(), uint16(tcp.SrcPort)), netip.AddrPortFrom(target.Unmap(), uint16(tcp.DstPort))
	next := tcp.Seq + uint32(len(tcp.Payload))
	switch {
	case from == w.server && to == w.client:
		advance(&w.serverNext, &w.seenServer, next)
		w.serverAck = tcp.Ack
	case from == w.client && to == w.server:
		advance(&w.clientNext, &w.seenClient, next)
		w.clientAck = tcp.Ack
		w.answer = "ack"
		if tcp.RST {
			w.answer = "rst"
		}
	}
}

// advance moves a sequence number forward, as sequence numbers go round.
func advance(to *uint32, seen *bool, next uint32) {
	if !*seen || int32(next-*to) > 0 {
		*to, *seen = next, true
	}
}
