// Package topology describes the standard env: which hosts there are and which addresses they have. Every substrate builds it.
package topology

import (
	"fmt"
	"net/netip"
)

// Topology describes an env's hosts and addresses. It is data: building it is a substrate's work.
type Topology struct {
	Hosts       []HostSpec
	PodCIDRs    []netip.Prefix // of the whole cluster, one a family: kube-proxy's clusterCIDR
	ServiceCIDR []netip.Prefix // one a family, IPv4 first
}

// Role says what a host is to the cluster.
type Role int

const (
	NodeRole    Role = iota // runs kube-proxy, forwards
	ServerRole              // a pod that serves
	ClientRole              // a pod that only connects
	OutsideRole             // a machine on the nodes' networks, outside the cluster
)

// HostSpec describes one host.
type HostSpec struct {
	Name   string
	Role   Role
	On     string            // for a pod: its node
	Index  int               // last number of its addresses and MACs
	Labels map[string]string // for a pod: what Services select it by
	Mgmt   bool              // has eth1 on the management network
	Routes bool              // for an outside machine: knows the way to pods, Services and floating addresses
	// Named addresses in CIDR notation, by name, IPv4 and IPv6.
	Addresses map[string][]netip.Prefix
}

// Standard is the env of design: nodes n1 and n2, each with a server pod (s1, s2) and a client pod (c1, c2); ext, a client
// outside the cluster on the same L2 as the nodes; other, a foreign host there that knows no way into the cluster.
//
// Addresses, X = 1 or 2 for the node, IPv6 likewise:
//
//	primary    192.168.10.1X/24   fd00:10::1X/64     eth0, the Node's InternalIP
//	secondary  192.168.10.2X/24   fd00:10::2X/64     eth0
//	floating   192.168.30.1X/32   fd00:30::1X/128    eth0, routed to the node by its neighbours, as a VIP is
//	mgmt       192.168.20.1X/24   fd00:20::1X/64     eth1
//	pods       10.244.X.10 (sX), 10.244.X.20 (cX)    fd00:244:X::10, ::20
//	ext        192.168.10.100, 192.168.20.100        fd00:10::100, fd00:20::100
//	other      192.168.10.200                        fd00:10::200
//	Services   10.96.0.0/16                          fd00:96::/112
func Standard() Topology {
	p := netip.MustParsePrefix
	t := Topology{
		PodCIDRs:    []netip.Prefix{p("10.244.0.0/16"), p("fd00:244::/32")},
		ServiceCIDR: []netip.Prefix{p("10.96.0.0/16"), p("fd00:96::/112")},
	}
	for x := 1; x <= 2; x++ {
		pair := func(v4, v6 string) []netip.Prefix {
			return []netip.Prefix{p(fmt.Sprintf(v4, x)), p(fmt.Sprintf(v6, x))}
		}
		node := fmt.Sprintf("n%d", x)
		t.Hosts = append(t.Hosts,
			HostSpec{Name: node, Role: NodeRole, Index: 10 + x, Mgmt: true, Addresses: map[string][]netip.Prefix{
				"primary":   pair("192.168.10.1%d/24", "fd00:10::1%d/64"),
				"secondary": pair("192.168.10.2%d/24", "fd00:10::2%d/64"),
				"floating":  pair("192.168.30.1%d/32", "fd00:30::1%d/128"),
				"mgmt":      pair("192.168.20.1%d/24", "fd00:20::1%d/64"),
				"localhost": {p("127.0.0.1/8"), p("::1/128")},
			}},
			HostSpec{Name: fmt.Sprintf("s%d", x), Role: ServerRole, On: node, Index: 10,
				Labels:    map[string]string{"app": "server", "pod": fmt.Sprintf("s%d", x)},
				Addresses: map[string][]netip.Prefix{"primary": pair("10.244.%d.10/32", "fd00:244:%d::10/128")}},
			HostSpec{Name: fmt.Sprintf("c%d", x), Role: ClientRole, On: node, Index: 20,
				Labels:    map[string]string{"app": "client", "pod": fmt.Sprintf("c%d", x)},
				Addresses: map[string][]netip.Prefix{"primary": pair("10.244.%d.20/32", "fd00:244:%d::20/128")}},
		)
	}
	t.Hosts = append(t.Hosts,
		HostSpec{Name: "ext", Role: OutsideRole, Index: 100, Mgmt: true, Routes: true, Addresses: map[string][]netip.Prefix{
			"primary": {p("192.168.10.100/24"), p("fd00:10::100/64")},
			"mgmt":    {p("192.168.20.100/24"), p("fd00:20::100/64")},
		}},
		HostSpec{Name: "other", Role: OutsideRole, Index: 200, Addresses: map[string][]netip.Prefix{
			"primary": {p("192.168.10.200/24"), p("fd00:10::200/64")},
		}},
	)
	return t
}

// Address returns the named address of one family (0 = IPv4, 1 = IPv6 in every list).
func (h HostSpec) Address(name string, v6 bool) (netip.Prefix, bool) {
	for _, a := range h.Addresses[name] {
		if a.Addr().Is6() == v6 {
			return a, true
		}
	}
	return netip.Prefix{}, false
}

// PodCIDR is the pods' network of node number x.
func PodCIDR(x int, v6 bool) netip.Prefix {
	if v6 {
		return netip.MustParsePrefix(fmt.Sprintf("fd00:244:%d::/64", x))
	}
	return netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", x))
}

// PodGateway is the address that every pod of node number x has as its gateway: the node's, on each pod's veth.
func PodGateway(x int, v6 bool) netip.Addr { return PodCIDR(x, v6).Addr().Next() }

// DefaultRoute is 0.0.0.0/0 or ::/0.
func DefaultRoute(v6 bool) netip.Prefix {
	if v6 {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}
