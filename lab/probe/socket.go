package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// open makes a non-blocking socket in the namespace.
func open(ns Netns, domain, typ, proto int) (int, error) {
	fd := -1
	err := ns.Do(func() (err error) {
		fd, err = unix.Socket(domain, typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, proto)
		return err
	})
	if err == nil {
		return fd, nil
	}
	err = os.NewSyscallError("socket", err)
	switch {
	case proto == unix.IPPROTO_SCTP && (errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ESOCKTNOSUPPORT)):
		return -1, fmt.Errorf("%w: this kernel has no SCTP sockets (CONFIG_IP_SCTP; load module sctp, or use a kernel that has it): %w",
			errors.ErrUnsupported, err)
	case errors.Is(err, unix.EPERM) && (typ == unix.SOCK_RAW || domain == unix.AF_PACKET):
		return -1, fmt.Errorf("raw socket: need CAP_NET_RAW in the network namespace: %w", err)
	}
	return -1, err
}

// protocol returns the socket type and IP protocol of a network.
func protocol(network string) (typ, proto int) {
	switch network {
	case "udp":
		return unix.SOCK_DGRAM, unix.IPPROTO_UDP
	case "sctp":
		return unix.SOCK_STREAM, unix.IPPROTO_SCTP
	default:
		return unix.SOCK_STREAM, unix.IPPROTO_TCP
	}
}

func domain(a netip.Addr) int {
	if a.Unmap().Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func sockaddr(ap netip.AddrPort) unix.Sockaddr {
	if a := ap.Addr().Unmap(); a.Is4() {
		return &unix.SockaddrInet4{Port: int(ap.Port()), Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Port: int(ap.Port()), Addr: ap.Addr().As16()}
}

// localAddr is the address that a socket is bound to.
func localAddr(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, os.NewSyscallError("getsockname", err)
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port)), nil
	}
	return netip.AddrPort{}, fmt.Errorf("getsockname: unexpected family %T", sa)
}

// bindSource binds a socket to a request's source, if it has one.
func bindSource(fd int, r Request) error {
	if r.Source == (netip.AddrPort{}) {
		return nil
	}
	source := r.Source
	if !source.Addr().IsValid() {
		source = netip.AddrPortFrom(netip.IPv6Unspecified(), source.Port())
		if r.Target.Addr().Unmap().Is4() {
			source = netip.AddrPortFrom(netip.IPv4Unspecified(), source.Port())
		}
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return os.NewSyscallError("setsockopt SO_REUSEADDR", err)
	}
	return os.NewSyscallError("bind", unix.Bind(fd, sockaddr(source)))
}

// netConn hands a connected socket to package net. It closes f.
func netConn(f *os.File) (net.Conn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	// Nothing may pass on a connection but what a probe sends: conntrack and IPVS timeouts depend on it.
	if tcp, ok := c.(*net.TCPConn); ok {
		if err := tcp.SetKeepAlive(false); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

// interruptOn ends the blocking calls on c when ctx ends. release undoes it; after it no interruption is under way.
func interruptOn(ctx context.Context, c interface{ SetDeadline(time.Time) error }) (release func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		c.SetDeadline(past)
	})
	return func() {
		if !stop() {
			<-done
		}
		c.SetDeadline(time.Time{})
	}
}
