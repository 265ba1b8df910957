package netns

import (
	"fmt"
	"math"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// mtu of every link: Ethernet's, so that nothing in a capture surprises.
const mtu = 1500

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func host32(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// connect makes a veth pair between two hosts; the near end may be enslaved to a bridge of its host.
func connect(near *host, nearName string, bridge netlink.Link, far *host, farName string, farMAC net.HardwareAddr) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = nearName, mtu
	if bridge != nil {
		attrs.MasterIndex = bridge.Attrs().Index
	}
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: farName, PeerHardwareAddr: farMAC, PeerNamespace: netlink.NsFd(far.ns)}
	if err := near.nl.LinkAdd(veth); err != nil {
		return fmt.Errorf("veth %s/%s to %s/%s: %w", near.spec.Name, nearName, far.spec.Name, farName, err)
	}
	for _, end := range []struct {
		h    *host
		name string
	}{{near, nearName}, {far, farName}} {
		link, err := end.h.nl.LinkByName(end.name)
		if err == nil {
			err = end.h.nl.LinkSetUp(link)
		}
		if err != nil {
			return fmt.Errorf("%s/%s up: %w", end.h.spec.Name, end.name, err)
		}
	}
	return nil
}

// addBridge makes a bridge that forwards at once (no STP).
func (h *host) addBridge(name string) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	if err := h.nl.LinkAdd(bridge); err != nil {
		return nil, fmt.Errorf("%s: bridge %s: %w", h.spec.Name, name, err)
	}
	if err := h.nl.LinkSetUp(bridge); err != nil {
		return nil, fmt.Errorf("%s: bridge %s up: %w", h.spec.Name, name, err)
	}
	return bridge, nil
}

// setAddress adds or removes an address. IPv6 addresses skip duplicate address detection: they are usable at once.
func (h *host) setAddress(iface string, p netip.Prefix, present bool) error {
	link, err := h.nl.LinkByName(iface)
	if err != nil {
		return fmt.Errorf("%s: interface %s: %w", h.spec.Name, iface, err)
	}
	addr := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	op, verb := h.nl.AddrAdd, "add"
	if !present {
		op, verb = h.nl.AddrDel, "remove"
	}
	if err := op(link, addr); err != nil {
		return fmt.Errorf("%s: %s %s on %s: %w", h.spec.Name, verb, p, iface, err)
	}
	return nil
}

// deprecate keeps an IPv6 address from being chosen as a source, as keepalived does for its VIPs; for IPv4 the first address
// of a subnet is the source anyway.
func (h *host) deprecate(iface string, p netip.Prefix) error {
	if p.Addr().Is4() {
		return nil
	}
	link, err := h.nl.LinkByName(iface)
	if err != nil {
		return fmt.Errorf("%s: interface %s: %w", h.spec.Name, iface, err)
	}
	addr := &netlink.Addr{IPNet: ipNet(p), Flags: unix.IFA_F_NODAD, ValidLft: math.MaxUint32, PreferedLft: 0}
	if err := h.nl.AddrReplace(link, addr); err != nil {
		return fmt.Errorf("%s: deprecate %s on %s: %w", h.spec.Name, p, iface, err)
	}
	return nil
}

// addRoute adds a route through a gateway, or onto the link itself when via is the zero address.
func (h *host) addRoute(iface string, dst netip.Prefix, via netip.Addr) error {
	link, err := h.nl.LinkByName(iface)
	if err != nil {
		return fmt.Errorf("%s: interface %s: %w", h.spec.Name, iface, err)
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(dst)}
	if via.IsValid() {
		route.Gw = via.AsSlice()
	} else if dst.Addr().Is4() {
		route.Scope = netlink.SCOPE_LINK
	}
	if err := h.nl.RouteAdd(route); err != nil {
		return fmt.Errorf("%s: route %s via %v on %s: %w", h.spec.Name, dst, via, iface, err)
	}
	return nil
}

// linksDown lists the host's veths that do not carry packets yet.
func (h *host) linksDown() (names []string, err error) {
	links, err := h.nl.LinkList()
	if err != nil {
		return nil, fmt.Errorf("%s: links: %w", h.spec.Name, err)
	}
	for _, l := range links {
		if l.Type() == "veth" && l.Attrs().OperState != netlink.OperUp {
			names = append(names, l.Attrs().Name)
		}
	}
	return names, nil
}

// mac is a locally administered address: network (0 = eth0, 1 = eth1, 2 and up = pods of a node) and host number.
func mac(network, index int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0x6b, 0x70, 0, byte(network), byte(index)}
}
