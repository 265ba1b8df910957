package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// packetSocket is an AF_PACKET socket.
type packetSocket struct {
	file *os.File
	raw  syscall.RawConn
}

// openPacket opens an AF_PACKET socket for packets of an EtherType (unix.ETH_P_ALL: also for those that leave) on an
// interface, or on all of the namespace if ifindex is 0. typ is SOCK_RAW, with link-layer headers, or SOCK_DGRAM, without.
func openPacket(ns Netns, ifindex, typ int, etherType uint16) (*packetSocket, error) {
	fd, err := open(ns, unix.AF_PACKET, typ, 0) // protocol 0: nothing comes in before bind
	if err != nil {
		return nil, err
	}
	const buffer = 8 << 20
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer) != nil { // not allowed in a user namespace
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer) // as much as net.core.rmem_max allows
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("setsockopt SO_TIMESTAMPNS", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(etherType), Ifindex: ifindex}); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("bind packet socket", err)
	}
	s := &packetSocket{file: os.NewFile(uintptr(fd), "packet")}
	if s.raw, err = s.file.SyscallConn(); err != nil {
		s.file.Close()
		return nil, err
	}
	return s, nil
}

func (s *packetSocket) send(frame []byte, ifindex int) error {
	var sendErr error
	err := s.raw.Control(func(fd uintptr) {
		sendErr = os.NewSyscallError("sendto", unix.Sendto(int(fd), frame, 0, &unix.SockaddrLinklayer{Ifindex: ifindex}))
	})
	return errors.Join(err, sendErr)
}

// packet is what a packet socket received. Its bytes are valid until the next one is received.
type packet struct {
	data     []byte
	length   int // of the whole packet, of which data may be the start
	outgoing bool
	time     time.Time // when the kernel saw it
}

// receive hands each packet that has arrived to take, until none is left (it returns false) or take returns true.
func (s *packetSocket) receive(fd uintptr, buf []byte, take func(packet) bool) bool {
	oob := make([]byte, 64)
	for {
		n, oobn, _, sa, err := unix.Recvmsg(int(fd), buf, oob, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		if err == unix.ENETDOWN { // the interface went down: reported once
			continue
		}
		if err != nil {
			return false
		}
		from, ok := sa.(*unix.SockaddrLinklayer)
		if !ok {
			continue
		}
		p := packet{data: buf[:min(n, len(buf))], length: n, outgoing: from.Pkttype == unix.PACKET_OUTGOING, time: stampOf(oob[:oobn])}
		if take(p) {
			return true
		}
	}
}

// stampOf reads the kernel's time stamp from control messages.
func stampOf(oob []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err == nil {
		for _, m := range messages {
			if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= 16 {
				return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
			}
		}
	}
	return time.Now()
}

func networkOrder(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// link is an interface of a namespace.
type link struct {
	name  string
	index int
	mac   net.HardwareAddr
	addrs []netip.Prefix
}

// lookupLink finds an interface and its addresses.
func lookupLink(ns Netns, name string) (link, error) {
	l := link{name: name}
	err := ns.Do(func() error { // package net asks by netlink on this very thread
		ifi, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		l.index, l.mac = ifi.Index, ifi.HardwareAddr
		addrs, err := ifi.Addrs()
		if err != nil {
			return err
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				l.addrs = append(l.addrs, p)
			}
		}
		return nil
	})
	if err != nil {
		return link{}, fmt.Errorf("interface %s: %w", name, err)
	}
	return l, nil
}

// sourceFor picks the address from which a neighbor would be asked for target: one of its subnet, else any of its family.
func (l link) sourceFor(target netip.Addr) (netip.Addr, bool) {
	var any netip.Addr
	for _, p := range l.addrs {
		if p.Contains(target) {
			return p.Addr(), true
		}
		if p.Addr().Is4() == target.Is4() && !any.IsValid() {
			any = p.Addr()
		}
	}
	return any, any.IsValid()
}
