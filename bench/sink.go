package bench

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"kplab/lab"
)

// sink takes TCP connections on some ports of a host, on all of its addresses. The kernel answers a SYN by itself; the connections
// wait in the listener's queue until drain, so that no server process competes with what is measured.
type sink struct {
	listeners []int
}

const queueLength = 4096 // of each listener

func newSink(h lab.Host, port, n int) (*sink, error) {
	s := &sink{}
	err := h.Do(func() error {
		// The default since 5.4; what the machine has set is its own business.
		_ = os.WriteFile("/proc/sys/net/core/somaxconn", fmt.Append(nil, queueLength), 0)
		for p := port; p < port+n; p++ {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return os.NewSyscallError("socket", err)
			}
			s.listeners = append(s.listeners, fd)
			if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Port: p}), unix.Listen(fd, queueLength)); err != nil {
				return fmt.Errorf("listen on port %d: %w", p, err)
			}
		}
		return nil
	})
	if err != nil {
		s.close()
		return nil, fmt.Errorf("%s: %w", h.Name(), err)
	}
	return s, nil
}

// drain takes all connections that wait, closes them and returns where they had arrived.
func (s *sink) drain() (arrived []netip.AddrPort) {
	for _, l := range s.listeners {
		for {
			fd, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC)
			if err == unix.EINTR || err == unix.ECONNABORTED {
				continue
			}
			if err != nil {
				break
			}
			if local, err := unix.Getsockname(fd); err == nil {
				if in, ok := local.(*unix.SockaddrInet4); ok {
					arrived = append(arrived, netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port)))
				}
			}
			unix.Close(fd)
		}
	}
	return arrived
}

func (s *sink) close() {
	for _, l := range s.listeners {
		unix.Close(l)
	}
	s.listeners = nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
