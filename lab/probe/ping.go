package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// Ping sends one ICMP or ICMPv6 echo request and waits for the reply. r.Network is "icmp"; ports are not used.
func Ping(ctx context.Context, ns Netns, r Request) (Outcome, error) {
	if there, ok := ns.(Remote); ok {
		return there.Dial(ctx, r)
	}
	if err := r.validate(); err != nil {
		return Outcome{}, err
	}
	target := r.Target.Addr().Unmap()
	s, err := openICMP(ns, target)
	if err != nil {
		return Outcome{}, fmt.Errorf("probe %s: %w", r, err)
	}
	defer s.file.Close()
	echo := newEcho(target)
	request, err := echo.request()
	if err != nil {
		return Outcome{}, fmt.Errorf("probe %s: %w", r, err)
	}
	var sendErr error
	sent := time.Now()
	err = s.raw.Control(func(fd uintptr) {
		if r.Source.Addr().IsValid() {
			if sendErr = os.NewSyscallError("bind", unix.Bind(int(fd), sockaddr(netip.AddrPortFrom(r.Source.Addr(), 0)))); sendErr != nil {
				return
			}
		}
		sendErr = os.NewSyscallError("sendto", unix.Sendto(int(fd), request, 0, sockaddr(netip.AddrPortFrom(target, 0))))
	})
	if err == nil {
		err = sendErr
	}
	if err != nil {
		if o, ok := errnoOutcome(err); ok {
			return o, nil
		}
		return Outcome{}, fmt.Errorf("probe %s: %w", r, err)
	}

	ctx, cancel := context.WithTimeoutCause(ctx, r.Timeout, errTimeout)
	defer cancel()
	release := interruptOn(ctx, s.file)
	defer release()
	var o Outcome
	err = s.raw.Read(func(fd uintptr) bool {
		return s.receive(fd, func(b []byte, from netip.Addr) (answered bool) {
			o, answered = echo.answer(b, from)
			return answered
		})
	})
	switch {
	case err == nil && o.Kind == Reachable:
		o.RTT = time.Since(sent)
		return o, nil
	case err == nil:
		return o, nil
	case context.Cause(ctx) == errTimeout:
		return Outcome{Kind: Timeout}, nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return Outcome{}, fmt.Errorf("probe %s: %w", r, err)
}

// echo is one echo request.
type echo struct {
	target netip.Addr
	id     uint16
	nonce  []byte
}

func newEcho(target netip.Addr) echo {
	return echo{target: target, id: uint16(rand.Uint32()), nonce: binary.BigEndian.AppendUint64([]byte("kplab"), rand.Uint64())}
}

const echoSeq = 1

// request is the ICMP message; the kernel fills in ICMPv6's checksum.
func (e echo) request() ([]byte, error) {
	buf := gopacket.NewSerializeBuffer()
	var err error
	if e.target.Is4() {
		err = gopacket.SerializeLayers(buf, gopacket.SerializeOptions{ComputeChecksums: true},
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0), Id: e.id, Seq: echoSeq},
			gopacket.Payload(e.nonce))
	} else {
		err = gopacket.SerializeLayers(buf, gopacket.SerializeOptions{},
			&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeEchoRequest, 0)},
			&layers.ICMPv6Echo{Identifier: e.id, SeqNumber: echoSeq},
			gopacket.Payload(e.nonce))
	}
	return buf.Bytes(), err
}

// answer reads a message that a raw socket received; ok is false if it has to do with something else.
func (e echo) answer(b []byte, from netip.Addr) (o Outcome, ok bool) {
	if icmp, isError := parseICMPError(b, from); isError {
		ours := icmp.target == e.target && (icmp.proto == unix.IPPROTO_ICMP || icmp.proto == unix.IPPROTO_ICMPV6) &&
			binary.BigEndian.Uint16(icmp.transport[4:]) == e.id
		return icmp.outcome(), ours
	}
	reply := byte(layers.ICMPv6TypeEchoReply)
	if from.Is4() {
		b, reply = afterIPv4(b), layers.ICMPv4TypeEchoReply
	}
	const header = 8
	if len(b) < header || b[0] != reply || binary.BigEndian.Uint16(b[4:]) != e.id || !bytes.Equal(b[header:], e.nonce) {
		return Outcome{}, false
	}
	return Outcome{Kind: Reachable, Detail: "from " + from.String()}, true
}
