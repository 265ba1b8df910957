package probe

import (
	"context"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// noLeak fails the test if it leaves more goroutines or file descriptors than there were.
func noLeak(t *testing.T) {
	t.Helper()
	descriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	fds, goroutines := descriptors(), runtime.NumGoroutine()
	t.Cleanup(func() {
		t.Helper()
		enough := func() bool { return descriptors() <= fds && runtime.NumGoroutine() <= goroutines+1 } // +1: it runs in its own
		if !assert.Eventually(t, enough, patient, time.Millisecond) {
			t.Logf("%d descriptors became %d, %d goroutines %d", fds, descriptors(), goroutines, runtime.NumGoroutine())
		}
	})
}

func TestDial(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	tp.serve(t, "s1", "tcp", 8080)
	tp.serve(t, "s1", "udp", 8080)
	const tcp, udp = unix.IPPROTO_TCP, unix.IPPROTO_UDP
	fw := newFirewall(t, tp.router)
	for _, proto := range []byte{tcp, udp} {
		fw.forward(proto, 8082, reject(unix.NFT_REJECT_ICMPX_PORT_UNREACH))
		fw.forward(proto, 8083, reject(unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED))
		fw.forward(proto, 8084, reject(unix.NFT_REJECT_ICMPX_HOST_UNREACH))
		fw.forward(proto, 8085, reject(unix.NFT_REJECT_ICMPX_NO_ROUTE))
		fw.forward(proto, 8086, drop())
	}
	fw.forward(tcp, 8087, rejectWithReset())
	fw.load()
	out := newFirewall(t, tp.client)
	for _, proto := range []byte{tcp, udp} {
		out.output(proto, 9082, reject(unix.NFT_REJECT_ICMPX_PORT_UNREACH))
		out.output(proto, 9086, drop())
	}
	out.output(tcp, 9087, rejectWithReset())
	out.load()
	for i, typ := range []int{unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT, unix.RTN_BLACKHOLE} {
		tp.router.route(t, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i), 0}), 24).String(), typ, "")
		tp.router.route(t, netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0, 0, 0x10 + byte(i)}), 64).String(), typ, "")
		tp.client.route(t, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 2, byte(i), 0}), 24).String(), typ, "")
		tp.client.route(t, netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0, 0, 0x20 + byte(i)}), 64).String(), typ, "")
	}

	for _, c := range []struct {
		network, target string
		want            string
	}{
		{"tcp", "10.0.2.2:8080", "reachable (s1, seen from 10.0.1.2)"},
		{"tcp", "[fd00:2::2]:8080", "reachable (s1, seen from fd00:1::2)"},
		{"udp", "10.0.2.2:8080", "reachable (s1, seen from 10.0.1.2)"},
		{"udp", "[fd00:2::2]:8080", "reachable (s1, seen from fd00:1::2)"},
		// Nobody listens.
		{"tcp", "10.0.2.2:8081", "refused (rst)"},
		{"tcp", "[fd00:2::2]:8081", "refused (rst)"},
		{"udp", "10.0.2.2:8081", "refused (icmp port-unreachable)"},
		{"udp", "[fd00:2::2]:8081", "refused (icmp port-unreachable)"},
		// The router rejects or drops.
		{"tcp", "10.0.2.2:8082", "refused (icmp port-unreachable)"},
		{"tcp", "[fd00:2::2]:8082", "refused (icmp port-unreachable)"},
		{"udp", "10.0.2.2:8082", "refused (icmp port-unreachable)"},
		{"udp", "[fd00:2::2]:8082", "refused (icmp port-unreachable)"},
		{"tcp", "10.0.2.2:8083", "unreachable (icmp admin-prohibited)"},
		{"tcp", "[fd00:2::2]:8083", "unreachable (icmp admin-prohibited)"},
		{"udp", "10.0.2.2:8083", "unreachable (icmp admin-prohibited)"},
		{"udp", "[fd00:2::2]:8083", "unreachable (icmp admin-prohibited)"},
		{"tcp", "10.0.2.2:8084", "unreachable (icmp host-unreachable)"},
		{"tcp", "[fd00:2::2]:8084", "unreachable (icmp addr-unreachable)"},
		{"udp", "10.0.2.2:8084", "unreachable (icmp host-unreachable)"},
		{"tcp", "10.0.2.2:8085", "unreachable (icmp net-unreachable)"},
		{"tcp", "[fd00:2::2]:8085", "unreachable (icmp no-route)"},
		{"tcp", "10.0.2.2:8086", "timeout"},
		{"tcp", "[fd00:2::2]:8086", "timeout"},
		{"udp", "10.0.2.2:8086", "timeout"},
		{"udp", "[fd00:2::2]:8086", "timeout"},
		{"tcp", "10.0.2.2:8087", "refused (rst)"},
		{"tcp", "[fd00:2::2]:8087", "refused (rst)"},
		// The router's routes.
		{"tcp", "10.1.0.1:80", "unreachable (icmp host-unreachable)"},
		{"tcp", "[fd00:10::1]:80", "unreachable (icmp no-route)"},
		{"udp", "10.1.0.1:80", "unreachable (icmp host-unreachable)"},
		{"tcp", "10.1.1.1:80", "unreachable (icmp admin-prohibited)"},
		{"tcp", "[fd00:11::1]:80", "unreachable (icmp admin-prohibited)"},
		{"tcp", "10.1.2.1:80", "timeout"},
		{"icmp", "10.1.0.1:0", "unreachable (icmp host-unreachable)"},
		{"icmp", "[fd00:11::1]:0", "unreachable (icmp admin-prohibited)"},
		{"icmp", "10.1.2.1:0", "timeout"},
		{"icmp", "10.0.2.2:0", "reachable (from 10.0.2.2)"},
		{"icmp", "[fd00:2::2]:0", "reachable (from fd00:2::2)"},
		{"icmp", "127.0.0.1:0", "reachable (from 127.0.0.1)"},
		{"icmp", "[::1]:0", "reachable (from ::1)"},
		// The client's own rules and routes.
		{"tcp", "10.0.2.2:9082", "refused (icmp port-unreachable)"},
		{"tcp", "[fd00:2::2]:9082", "refused (icmp port-unreachable)"},
		{"udp", "10.0.2.2:9082", "refused (icmp port-unreachable)"},
		{"tcp", "10.0.2.2:9086", "timeout"},
		{"udp", "10.0.2.2:9086", "unreachable (EPERM)"},
		{"udp", "[fd00:2::2]:9086", "unreachable (EPERM)"},
		{"tcp", "10.0.2.2:9087", "refused (rst)"},
		{"tcp", "192.0.2.1:80", "unreachable (ENETUNREACH)"},
		{"udp", "192.0.2.1:80", "unreachable (ENETUNREACH)"},
		{"icmp", "192.0.2.1:0", "unreachable (ENETUNREACH)"},
		{"tcp", "[2001:db8::1]:80", "unreachable (ENETUNREACH)"},
		{"tcp", "10.2.0.1:80", "unreachable (EHOSTUNREACH)"},
		{"tcp", "[fd00:20::1]:80", "unreachable (EHOSTUNREACH)"},
		{"tcp", "10.2.1.1:80", "unreachable (EACCES)"},
		{"tcp", "[fd00:21::1]:80", "unreachable (EACCES)"},
		{"tcp", "10.2.2.1:80", "unreachable (EINVAL)"},
		{"tcp", "[fd00:22::1]:80", "unreachable (EINVAL)"},
	} {
		t.Run(c.network+" "+c.target, func(t *testing.T) {
			timeout := patient
			if c.want == "timeout" {
				timeout = impatient
			}
			o, err := Dial(t.Context(), tp.client, Request{Network: c.network, Target: netip.MustParseAddrPort(c.target), Timeout: timeout})
			require.NoError(t, err)
			assert.Equal(t, c.want, o.String())
			assert.Equal(t, o.Kind == Reachable, o.RTT > 0)
		})
	}
}

// A neighbor that does not answer is reported by the client's own kernel.
func TestDialSilentNeighbor(t *testing.T) {
	tp := newTopology(t)
	for _, family := range []string{"ipv4", "ipv6"} {
		tp.client.Do(func() error { // to make it faster, where a user namespace may
			os.WriteFile("/proc/sys/net/"+family+"/neigh/eth0/mcast_solicit", []byte("1"), 0)
			os.WriteFile("/proc/sys/net/"+family+"/neigh/eth0/retrans_time_ms", []byte("100"), 0)
			return nil
		})
	}
	for _, c := range []struct{ network, target, want string }{
		{"tcp", "10.0.1.77:80", "unreachable (icmp host-unreachable)"},
		{"udp", "10.0.1.78:80", "unreachable (icmp host-unreachable)"},
		{"tcp", "[fd00:1::77]:80", "unreachable (icmp addr-unreachable)"},
		{"icmp", "[fd00:1::78]:80", "unreachable (icmp addr-unreachable)"},
	} {
		o, err := Dial(t.Context(), tp.client, Request{Network: c.network, Target: netip.MustParseAddrPort(c.target), Timeout: patient})
		require.NoError(t, err)
		assert.Equal(t, c.want, o.String(), c.target)
	}
}

func TestDialSource(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	tp.client.address(t, "eth0", "10.0.1.3/24")
	tp.serve(t, "s1", "tcp", 8080)
	tp.serve(t, "s1", "udp", 8080)
	for _, network := range []string{"tcp", "udp"} {
		r := Request{Network: network, Target: netip.AddrPortFrom(server4, 8080), Source: netip.MustParseAddrPort("10.0.1.3:4321"), Timeout: patient, Abort: true}
		for range 3 { // Abort leaves no TIME_WAIT
			o, err := Dial(t.Context(), tp.client, r)
			require.NoError(t, err)
			assert.Equal(t, r.Source, o.Source)
		}
		r.Source = netip.AddrPortFrom(netip.Addr{}, 4322)
		o, err := Dial(t.Context(), tp.client, r)
		require.NoError(t, err)
		assert.Equal(t, netip.AddrPortFrom(client4, 4322), o.Source)

		r.Source = netip.MustParseAddrPort("10.0.1.99:0")
		o, err = Dial(t.Context(), tp.client, r)
		require.NoError(t, err)
		assert.Equal(t, "unreachable (EADDRNOTAVAIL)", o.String())
	}
}

// A connection that is established and then reset, ended or left without an answer.
func TestDialAfterConnect(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	for _, c := range []struct {
		name, want string
		answer     func(fd int)
	}{
		{"reset", "reset", func(fd int) {
			unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			unix.Close(fd)
		}},
		{"ended", "reset (closed without an answer)", func(fd int) {
			unix.Read(fd, make([]byte, 64))
			unix.Close(fd)
		}},
		{"another server", "reachable (another server: HTTP/1.1 400 Bad Request)", func(fd int) {
			unix.Read(fd, make([]byte, 64))
			unix.Write(fd, []byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			unix.Close(fd)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fd, err := open(tp.server, unix.AF_INET, unix.SOCK_STREAM, 0)
			require.NoError(t, err)
			defer unix.Close(fd)
			require.NoError(t, unix.SetNonblock(fd, false))
			require.NoError(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
			require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Port: 8000}))
			require.NoError(t, unix.Listen(fd, 1))
			served := make(chan struct{})
			go func() {
				defer close(served)
				if conn, _, err := unix.Accept(fd); err == nil {
					c.answer(conn)
				}
			}()
			o, err := Dial(t.Context(), tp.client, Request{Network: "tcp", Target: netip.AddrPortFrom(server4, 8000), Timeout: patient})
			require.NoError(t, err)
			assert.Equal(t, c.want, o.String())
			<-served
		})
	}
	t.Run("no answer", func(t *testing.T) {
		fd, err := open(tp.server, unix.AF_INET, unix.SOCK_STREAM, 0)
		require.NoError(t, err)
		defer unix.Close(fd)
		require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Port: 8001}))
		require.NoError(t, unix.Listen(fd, 1)) // nobody accepts
		o, err := Dial(t.Context(), tp.client, Request{Network: "tcp", Target: netip.AddrPortFrom(server4, 8001), Timeout: impatient})
		require.NoError(t, err)
		assert.Equal(t, "timeout (connected, no answer)", o.String())
	})
}

// A context that ends is the lab's error, not an outcome.
func TestDialContext(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	fw := newFirewall(t, tp.router)
	fw.forward(unix.IPPROTO_TCP, 80, drop())
	fw.forward(unix.IPPROTO_UDP, 80, drop())
	fw.load()
	for _, r := range []Request{
		{Network: "tcp", Target: netip.AddrPortFrom(server4, 80), Timeout: time.Hour},
		{Network: "udp", Target: netip.AddrPortFrom(server4, 80), Timeout: time.Hour},
		{Network: "icmp", Target: netip.MustParseAddrPort("10.0.1.99:0"), Timeout: time.Hour},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), impatient)
		_, err := Dial(ctx, tp.client, r)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, r.Network)
	}
}

func TestRequestInvalid(t *testing.T) {
	good := Request{Network: "tcp", Target: netip.AddrPortFrom(server4, 80), Timeout: time.Second}
	for name, change := range map[string]func(*Request){
		"network":  func(r *Request) { r.Network = "quic" },
		"target":   func(r *Request) { r.Target = netip.AddrPort{} },
		"zone":     func(r *Request) { r.Target = netip.MustParseAddrPort("[fe80::1%eth0]:80") },
		"families": func(r *Request) { r.Source = netip.AddrPortFrom(client6, 0) },
		"timeout":  func(r *Request) { r.Timeout = 0 },
	} {
		r := good
		change(&r)
		_, err := Dial(t.Context(), nil, r)
		assert.Error(t, err, name)
	}
}
