package probe

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// icmpError is an ICMP or ICMPv6 error and the packet that it is about.
type icmpError struct {
	name   string     // as in nft's reject statement
	refuse bool       // it says that nobody listens on the port
	from   netip.Addr // who sent it

	proto          int // of the packet it is about
	source, target netip.Addr
	transport      []byte // the first bytes after that packet's IP header, at least 8
}

func (e *icmpError) Error() string { return fmt.Sprintf("icmp %s from %s", e.name, e.from) }

func (e *icmpError) outcome() Outcome {
	o := Outcome{Kind: Unreachable, ICMP: e.name, Detail: "from " + e.from.String()}
	if e.refuse {
		o.Kind = Refused
	}
	return o
}

// about reports whether the error answers a packet of that protocol between these addresses and ports.
func (e *icmpError) about(proto int, source, target netip.AddrPort) bool {
	return e.proto == proto && e.source == source.Addr() && e.target == target.Addr() &&
		binary.BigEndian.Uint16(e.transport) == source.Port() && binary.BigEndian.Uint16(e.transport[2:]) == target.Port()
}

// Types of ICMP (RFC 792) and ICMPv6 (RFC 4443) errors. Those about the packet's size end no connection and are left out.
const (
	icmp4Unreachable, icmp4TimeExceeded, icmp4ParameterProblem = 3, 11, 12
	icmp6Unreachable, icmp6TimeExceeded, icmp6ParameterProblem = 1, 3, 4
	icmp4FragmentationNeeded                                   = 4 // code of icmp4Unreachable
)

// Codes of destination unreachable, by nft's names where it has one.
var (
	icmp4Codes = []string{"net-unreachable", "host-unreachable", "prot-unreachable", "port-unreachable", "frag-needed", "source-route-failed",
		"net-unknown", "host-unknown", "host-isolated", "net-prohibited", "host-prohibited", "net-tos", "host-tos", "admin-prohibited"}
	icmp6Codes = []string{"no-route", "admin-prohibited", "beyond-scope", "addr-unreachable", "port-unreachable", "policy-fail", "reject-route"}
)

func icmpName(is4 bool, typ, code byte) (name string, ok bool) {
	codes, unreachable, exceeded, problem := icmp6Codes, byte(icmp6Unreachable), byte(icmp6TimeExceeded), byte(icmp6ParameterProblem)
	if is4 {
		codes, unreachable, exceeded, problem = icmp4Codes, icmp4Unreachable, icmp4TimeExceeded, icmp4ParameterProblem
	}
	switch {
	case is4 && typ == unreachable && code == icmp4FragmentationNeeded:
		return "", false
	case typ == unreachable && int(code) < len(codes):
		return codes[code], true
	case typ == unreachable:
		return fmt.Sprintf("unreachable code %d", code), true
	case typ == exceeded:
		return "time-exceeded", true
	case typ == problem:
		return "parameter-problem", true
	}
	return "", false
}

// parseICMPError reads a message of a raw ICMP socket, which starts with the IP header for IPv4 and with the ICMP header for IPv6.
func parseICMPError(b []byte, from netip.Addr) (*icmpError, bool) {
	is4 := from.Is4()
	if is4 {
		b = afterIPv4(b)
	}
	if len(b) < 8 {
		return nil, false
	}
	name, ok := icmpName(is4, b[0], b[1])
	if !ok {
		return nil, false
	}
	e := &icmpError{name: name, refuse: name == "port-unreachable", from: from}
	inner := b[8:]
	if is4 {
		e.transport = afterIPv4(inner)
		if len(e.transport) < 8 {
			return nil, false
		}
		e.proto, e.source, e.target = int(inner[9]), netip.AddrFrom4([4]byte(inner[12:])), netip.AddrFrom4([4]byte(inner[16:]))
		return e, true
	}
	if len(inner) < 48 {
		return nil, false
	}
	e.proto, e.source, e.target = int(inner[6]), netip.AddrFrom16([16]byte(inner[8:])), netip.AddrFrom16([16]byte(inner[24:]))
	e.transport = inner[40:]
	return e, true
}

// afterIPv4 cuts the IP header off; nil if b is too short to hold one.
func afterIPv4(b []byte) []byte {
	if len(b) < 20 || len(b) < int(b[0]&0xf)*4 {
		return nil
	}
	return b[int(b[0]&0xf)*4:]
}

// icmpSocket is a raw socket that receives the namespace's ICMP or ICMPv6 messages.
type icmpSocket struct {
	file *os.File
	raw  syscall.RawConn
}

// openICMP opens a raw ICMP socket for the family of addr.
func openICMP(ns Netns, addr netip.Addr) (*icmpSocket, error) {
	proto := unix.IPPROTO_ICMP
	if !addr.Is4() {
		proto = unix.IPPROTO_ICMPV6
	}
	fd, err := open(ns, domain(addr), unix.SOCK_RAW, proto)
	if err != nil {
		return nil, err
	}
	s := &icmpSocket{file: os.NewFile(uintptr(fd), "icmp")}
	if s.raw, err = s.file.SyscallConn(); err != nil {
		s.file.Close()
		return nil, err
	}
	return s, nil
}

// receive hands each message that has arrived to message, until none is left (it returns false) or message returns true.
func (s *icmpSocket) receive(fd uintptr, message func(b []byte, from netip.Addr) bool) bool {
	buf := make([]byte, 2048)
	for {
		n, sa, err := unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT)
		if err != nil { // EAGAIN: this socket reports nothing else
			return false
		}
		var from netip.Addr
		switch sa := sa.(type) {
		case *unix.SockaddrInet4:
			from = netip.AddrFrom4(sa.Addr)
		case *unix.SockaddrInet6:
			from = netip.AddrFrom16(sa.Addr)
		}
		if message(buf[:n], from) {
			return true
		}
	}
}

// icmpWatch watches for ICMP errors about one flow. It is used instead of the socket's error queue (IP_RECVERR) because
// that queue has no TCP errors before kernel 5.13 and no SCTP errors at all, and because IP_RECVERR changes how an
// established connection takes an error.
type icmpWatch struct {
	*icmpSocket
	done chan struct{} // closed when the watching goroutine has ended; nil before start
}

// watchICMP begins to collect ICMP errors of target's family. What has arrived before start is not lost.
func watchICMP(ns Netns, target netip.Addr) (*icmpWatch, error) {
	s, err := openICMP(ns, target.Unmap())
	if err != nil {
		return nil, err
	}
	return &icmpWatch{icmpSocket: s}, nil
}

// start calls found, from one goroutine, for each error about a packet from source to target.
func (w *icmpWatch) start(proto int, source, target netip.AddrPort, found func(*icmpError)) {
	target = netip.AddrPortFrom(target.Addr().Unmap(), target.Port())
	receive := func(fd uintptr) bool {
		return w.receive(fd, func(b []byte, from netip.Addr) bool {
			if e, ok := parseICMPError(b, from); ok && e.about(proto, source, target) {
				e.transport = nil // it is receive's buffer
				found(e)
			}
			return false
		})
	}
	w.done = make(chan struct{})
	go func() {
		defer close(w.done)
		w.raw.Read(receive) // until close
		w.raw.Control(func(fd uintptr) { receive(fd) })
	}()
}

// close ends the watch; every error that had arrived has then been handed to found.
func (w *icmpWatch) close() {
	if w.done != nil {
		w.file.SetDeadline(past)
		<-w.done
	}
	w.file.Close()
}
