package probe

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Server answers in a namespace, on all its IPv4 and IPv6 addresses, and says in each answer who it is and which source
// address it saw: {"endpoint":"s1","source":"10.244.1.20:43210","address":"10.244.1.10:8080"}. Any line or datagram is a
// request. A connection stays open until the client ends it or the server is closed.
type Server struct {
	name, network string
	port          int

	listener net.Listener // of tcp and sctp
	packets  *net.UDPConn // of udp

	mu     sync.Mutex
	conns  map[net.Conn]netip.Addr // open connections and their clients
	told   map[string]spans        // what one-way flows have told, by flow
	closed bool
	done   chan struct{} // closed with closed
	served sync.WaitGroup
}

// Serve starts a server of network "tcp", "udp" or "sctp" in the namespace. Port 0 takes a free one. Where the kernel has
// no SCTP sockets the error is an [errors.ErrUnsupported].
func Serve(ns Netns, name, network string, port int) (*Server, error) {
	s := &Server{name: name, network: network, conns: map[net.Conn]netip.Addr{}, told: map[string]spans{}, done: make(chan struct{})}
	if err := s.listen(ns, port); err != nil {
		return nil, fmt.Errorf("serve %s on %s port %d: %w", name, network, port, err)
	}
	if s.packets != nil {
		s.served.Go(s.serveDatagrams)
	} else {
		s.served.Go(s.accept)
	}
	return s, nil
}

func (s *Server) listen(ns Netns, port int) error {
	if s.network != "tcp" && s.network != "udp" && s.network != "sctp" {
		return fmt.Errorf("unknown network %q: known are tcp, udp, sctp", s.network)
	}
	typ, proto := protocol(s.network)
	fd, err := open(ns, unix.AF_INET6, typ, proto)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), s.network)
	defer f.Close() // package net duplicates it
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0); err != nil {
		return os.NewSyscallError("setsockopt IPV6_V6ONLY", err)
	}
	if s.network == "udp" {
		// The answer must leave from the address that was asked, which routing might not choose.
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1); err != nil {
			return os.NewSyscallError("setsockopt IPV6_RECVPKTINFO", err)
		}
	} else if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return os.NewSyscallError("setsockopt SO_REUSEADDR", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet6{Port: port}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	local, err := localAddr(fd)
	if err != nil {
		return err
	}
	s.port = int(local.Port())
	if s.network == "udp" {
		c, err := net.FilePacketConn(f)
		if err != nil {
			return err
		}
		s.packets = c.(*net.UDPConn)
		return nil
	}
	if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
		return os.NewSyscallError("listen", err)
	}
	s.listener, err = net.FileListener(f)
	return err
}

// Name is the endpoint's name in its answers.
func (s *Server) Name() string { return s.name }

// Port is the port it listens on.
func (s *Server) Port() int { return s.port }

// Open counts the connections that are open; a UDP server has none.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// OpenBySource counts the open connections by the client's address as the server sees it.
func (s *Server) OpenBySource() map[netip.Addr]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[netip.Addr]int{}
	for _, source := range s.conns {
		counts[source]++
	}
	return counts
}

// Close stops listening, closes every connection and returns when all is over.
func (s *Server) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.done)
	}
	var err error
	if s.listener != nil {
		err = s.listener.Close()
	} else {
		err = s.packets.Close()
	}
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.served.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil // closed before
	}
	return err
}

func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // the client has gone already, or no descriptors are left: not to spin until there are, as net/http does
			select {
			case <-time.After(5 * time.Millisecond):
			case <-s.done:
			}
			continue
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			tcp.SetKeepAlive(false) // see netConn
		}
		if !s.add(c) {
			c.Close()
			return
		}
		s.served.Go(func() {
			defer s.remove(c)
			s.serveConn(c)
		})
	}
}

func (s *Server) add(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.conns[c] = addrPortOf(c.RemoteAddr()).Addr()
	return true
}

func (s *Server) remove(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	c.Close()
}

// serveConn answers requests until the client ends the connection.
func (s *Server) serveConn(c net.Conn) {
	who := answer{Endpoint: s.name, Source: addrPortOf(c.RemoteAddr()), Address: addrPortOf(c.LocalAddr())}
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
		verb, arg, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		n, badCount := strconv.ParseInt(arg, 10, 64)
		switch {
		case verb == echoRequest && badCount == nil:
			_, err = io.CopyN(c, in, n)
		case verb == sendRequest && badCount == nil:
			_, err = io.CopyN(c, zeros{}, n)
		case verb == dripRequest:
			err = s.drip(c, arg)
		default:
			who.ID = ""
			if verb == whoRequest {
				who.ID = arg
			}
			_, err = c.Write(who.line())
		}
		if err != nil {
			return
		}
	}
}

// drip sends single bytes at intervals, as the argument says, until the server is closed. One that it cannot read is an error.
func (s *Server) drip(c net.Conn, arg string) error {
	count, every, _ := strings.Cut(arg, " ")
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		return err
	}
	interval, err := time.ParseDuration(every)
	if err != nil {
		return err
	}
	tick := time.NewTicker(max(interval, time.Millisecond))
	defer tick.Stop()
	for range n {
		if _, err := c.Write([]byte{0}); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-s.done:
			return net.ErrClosed
		}
	}
	return nil
}

// serveDatagrams answers each datagram from the address that it was sent to.
func (s *Server) serveDatagrams() {
	buf, oob := make([]byte, 64<<10), make([]byte, 256)
	for {
		n, oobn, _, source, err := s.packets.ReadMsgUDPAddrPort(buf, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error about an earlier answer
		}
		who := answer{Endpoint: s.name, Source: source}
		switch verb, arg, _ := strings.Cut(strings.TrimSpace(string(buf[:n])), " "); verb {
		case tellRequest:
			s.note(arg)
			continue
		case toldRequest:
			who.ID, who.Told = arg, s.noted(arg)
		case whoRequest:
			who.ID = arg
		}
		var from []byte
		if arrived, ok := arrivedAt(oob[:oobn]); ok {
			who.Address = netip.AddrPortFrom(arrived, uint16(s.port))
			from = unix.PktInfo6(&unix.Inet6Pktinfo{Addr: arrived.As16()})
		}
		s.packets.WriteMsgUDPAddrPort(who.line(), from, source) // a failure is a client's timeout
	}
}

// arrivedAt reads the address that a datagram was sent to from its control messages.
func arrivedAt(oob []byte) (netip.Addr, bool) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netip.Addr{}, false
	}
	for _, m := range messages {
		if m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= 16 {
			return netip.AddrFrom16([16]byte(m.Data)), true
		}
	}
	return netip.Addr{}, false
}

// zeros reads as zero bytes without end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// addrPortOf reads the address of a TCP or UDP end; package net shows SCTP's as TCP's.
func addrPortOf(a net.Addr) netip.AddrPort {
	if a, ok := a.(interface{ AddrPort() netip.AddrPort }); ok {
		return unmap(a.AddrPort())
	}
	return netip.AddrPort{}
}
