package probe

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Enough for any answer that comes, and for a wait that shall see none.
const (
	patient   = 10 * time.Second
	impatient = 300 * time.Millisecond
)

// namespace is a network namespace held by an OS thread.
type namespace struct {
	calls chan func()
	fd    int
}

func (n *namespace) Do(fn func() error) error {
	done := make(chan error)
	n.calls <- func() { done <- fn() }
	return <-done
}

func newNamespace(t *testing.T) *namespace {
	t.Helper()
	n := &namespace{calls: make(chan func()), fd: -1}
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine
		for call := range n.calls {
			call()
		}
	}()
	t.Cleanup(func() { close(n.calls) })
	n.do(t, func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		if n.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	t.Cleanup(func() { unix.Close(n.fd) })
	// The kernel sends a client few ICMP errors a second: not what is tested here. (icmp_ratelimit=0 would empty the
	// bucket that errors of unreachable routes are taken from.)
	n.sysctl(t, "net/ipv4/icmp_ratemask", "0")
	n.sysctl(t, "net/ipv6/icmp/ratelimit", "0")
	n.sysctl(t, "net/ipv6/conf/default/accept_dad", "0") // or a router's link-local address takes 2 s to be usable
	return n
}

func (n *namespace) do(t *testing.T, fn func() error) {
	t.Helper()
	require.NoError(t, n.Do(fn))
}

func (n *namespace) sysctl(t *testing.T, name, value string) {
	t.Helper()
	n.do(t, func() error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0) })
}

func (n *namespace) address(t *testing.T, link string, prefixes ...string) {
	t.Helper()
	n.do(t, func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		for _, p := range prefixes {
			a, err := netlink.ParseAddr(p)
			if err != nil {
				return err
			}
			if a.IP.To4() == nil {
				a.Flags = unix.IFA_F_NODAD
			}
			if err := netlink.AddrAdd(l, a); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(l)
	})
}

// route adds a route of a type (unix.RTN_UNICAST: via a gateway).
func (n *namespace) route(t *testing.T, dst string, typ int, gateway string) {
	t.Helper()
	n.do(t, func() error {
		_, ipnet, err := net.ParseCIDR(dst)
		if err != nil {
			return err
		}
		r := &netlink.Route{Dst: ipnet, Type: typ, Gw: net.ParseIP(gateway)}
		if gateway == "" {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			if ipnet.IP.To4() == nil {
				r.LinkIndex = lo.Attrs().Index
			}
		}
		return netlink.RouteAdd(r)
	})
}

func connectLinks(t *testing.T, a *namespace, aLink string, b *namespace, bLink string) {
	t.Helper()
	a.do(t, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = aLink
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: bLink, PeerNamespace: netlink.NsFd(b.fd)})
	})
}

// topology is client - router - server, dual-stack.
type topology struct{ client, router, server *namespace }

var (
	client4, client6 = netip.MustParseAddr("10.0.1.2"), netip.MustParseAddr("fd00:1::2")
	router4, router6 = netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("fd00:1::1")
	server4, server6 = netip.MustParseAddr("10.0.2.2"), netip.MustParseAddr("fd00:2::2")
)

func newTopology(t *testing.T) topology {
	t.Helper()
	tp := topology{client: newNamespace(t), router: newNamespace(t), server: newNamespace(t)}
	connectLinks(t, tp.client, "eth0", tp.router, "eth0")
	connectLinks(t, tp.server, "eth0", tp.router, "eth1")
	tp.client.address(t, "eth0", "10.0.1.2/24", "fd00:1::2/64")
	tp.server.address(t, "eth0", "10.0.2.2/24", "fd00:2::2/64")
	tp.router.address(t, "eth0", "10.0.1.1/24", "fd00:1::1/64")
	tp.router.address(t, "eth1", "10.0.2.1/24", "fd00:2::1/64")
	tp.router.sysctl(t, "net/ipv4/ip_forward", "1")
	tp.router.sysctl(t, "net/ipv6/conf/all/forwarding", "1")
	for _, n := range []*namespace{tp.client, tp.server} {
		gateway4, gateway6 := "10.0.1.1", "fd00:1::1"
		if n == tp.server {
			gateway4, gateway6 = "10.0.2.1", "fd00:2::1"
		}
		n.route(t, "10.0.0.0/8", unix.RTN_UNICAST, gateway4)
		n.route(t, "fd00::/16", unix.RTN_UNICAST, gateway6)
	}
	tp.client.waitUp(t, "eth0")
	tp.server.waitUp(t, "eth0")
	tp.router.waitUp(t, "eth0")
	tp.router.waitUp(t, "eth1")
	return tp
}

// waitUp waits until the kernel sends on a link, some time after its carrier has come up: until then packets are lost.
func (n *namespace) waitUp(t *testing.T, link string) {
	t.Helper()
	require.Eventually(t, func() bool {
		up := false
		n.do(t, func() error {
			l, err := netlink.LinkByName(link)
			if err == nil {
				up = l.Attrs().OperState == netlink.OperUp
			}
			return err
		})
		return up
	}, patient, time.Millisecond)
}

func (tp topology) serve(t *testing.T, name, network string, port int) *Server {
	t.Helper()
	s, err := Serve(tp.server, name, network, port)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// firewall is an nftables table of family inet with chains at the hooks that a test needs.
type firewall struct {
	t     *testing.T
	conn  *nftables.Conn
	table *nftables.Table
	hooks map[*nftables.ChainHook]*nftables.Chain
}

func newFirewall(t *testing.T, n *namespace) *firewall {
	t.Helper()
	conn, err := nftables.New(nftables.WithNetNSFd(n.fd))
	require.NoError(t, err)
	f := &firewall{t: t, conn: conn, hooks: map[*nftables.ChainHook]*nftables.Chain{}}
	f.table = conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "test"})
	return f
}

func (f *firewall) chain(name string, typ nftables.ChainType, hook *nftables.ChainHook, prio *nftables.ChainPriority) *nftables.Chain {
	if f.hooks[hook] == nil {
		f.hooks[hook] = f.conn.AddChain(&nftables.Chain{Name: name, Table: f.table, Type: typ, Hooknum: hook, Priority: prio})
	}
	return f.hooks[hook]
}

// forward and output apply statements to packets of a protocol to a port.
func (f *firewall) forward(proto byte, port int, statements ...expr.Any) {
	c := f.chain("forward", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter)
	f.conn.AddRule(&nftables.Rule{Table: f.table, Chain: c, Exprs: append(toPort(proto, port), statements...)})
}

func (f *firewall) output(proto byte, port int, statements ...expr.Any) {
	c := f.chain("output", nftables.ChainTypeFilter, nftables.ChainHookOutput, nftables.ChainPriorityFilter)
	f.conn.AddRule(&nftables.Rule{Table: f.table, Chain: c, Exprs: append(toPort(proto, port), statements...)})
}

// dnat sends TCP to an address and port elsewhere.
func (f *firewall) dnat(from, to netip.AddrPort) {
	c := f.chain("prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest)
	offset, family := uint32(24), uint32(unix.NFPROTO_IPV6) // of the destination address in the IP header
	if to.Addr().Is4() {
		offset, family = 16, unix.NFPROTO_IPV4
	}
	addr := from.Addr().AsSlice()
	statements := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{byte(family)}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(len(addr))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: addr},
		&expr.Immediate{Register: 1, Data: to.Addr().AsSlice()},
		&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(to.Port())},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: family, RegAddrMin: 1, RegProtoMin: 2},
	}
	f.conn.AddRule(&nftables.Rule{Table: f.table, Chain: c, Exprs: append(toPort(unix.IPPROTO_TCP, int(from.Port())), statements...)})
}

func (f *firewall) load() {
	f.t.Helper()
	require.NoError(f.t, f.conn.Flush())
}

func toPort(proto byte, port int) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(uint16(port))},
	}
}

// drop and reject are nft statements.
func drop() expr.Any { return &expr.Verdict{Kind: expr.VerdictDrop} }

func reject(code byte) expr.Any {
	return &expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: code}
}

func rejectWithReset() expr.Any { return &expr.Reject{Type: unix.NFT_REJECT_TCP_RST} }
