package kindenv

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// setAddress adds or removes an address; one that is there, or not there, already is left so. IPv6 addresses skip duplicate
// address detection. One that is deprecated is never chosen as a source.
func (h *host) setAddress(iface string, p netip.Prefix, present, deprecated bool) error {
	link, err := h.nl.LinkByName(iface)
	if err != nil {
		return fmt.Errorf("%s: interface %s: %w", h.Name(), iface, err)
	}
	addr := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
		if deprecated {
			addr.ValidLft, addr.PreferedLft = math.MaxUint32, 0
		}
	}
	op, verb := h.nl.AddrReplace, "add"
	if !present {
		op, verb = h.nl.AddrDel, "remove"
	}
	if err := op(link, addr); err != nil && (present || !errors.Is(err, unix.EADDRNOTAVAIL)) {
		return fmt.Errorf("%s: %s %s on %s: %w", h.Name(), verb, p, iface, err)
	}
	return nil
}

// setRoute makes a gateway the way to a network; the default route is 0.0.0.0/0 or ::/0.
func (h *host) setRoute(dst netip.Prefix, via netip.Addr) error {
	if err := h.nl.RouteReplace(&netlink.Route{Dst: ipNet(dst), Gw: via.AsSlice()}); err != nil {
		return fmt.Errorf("%s: route %s via %s: %w", h.Name(), dst, via, err)
	}
	return nil
}

// dropDefaultRoute leaves the host no way out of the networks that it is on.
func (h *host) dropDefaultRoute(v6 bool) error {
	family := netlink.FAMILY_V4
	if v6 {
		family = netlink.FAMILY_V6
	}
	routes, err := h.nl.RouteList(nil, family)
	if err != nil {
		return fmt.Errorf("%s: routes: %w", h.Name(), err)
	}
	for _, r := range routes {
		if r.Dst != nil {
			if ones, _ := r.Dst.Mask.Size(); ones != 0 {
				continue
			}
		}
		if err := h.nl.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("%s: remove the default route: %w", h.Name(), err)
		}
	}
	return nil
}

// wire makes a second network: a bridge in a namespace of its own with a link to eth1 of each host. Links that are there
// already, from an earlier run on the same cluster, are replaced.
func wire(hub *host, hosts []*host) error {
	bridge := &netlink.Bridge{LinkAttrs: named("br-eth1")}
	if err := hub.nl.LinkAdd(bridge); err != nil {
		return fmt.Errorf("bridge of the management network: %w", err)
	}
	if err := hub.nl.LinkSetUp(bridge); err != nil {
		return err
	}
	for _, h := range hosts {
		if old, err := h.nl.LinkByName("eth1"); err == nil {
			if err := h.nl.LinkDel(old); err != nil {
				return fmt.Errorf("%s: remove the eth1 of an earlier run: %w", h.Name(), err)
			}
		}
		if err := connect(hub, bridge, h); err != nil {
			return err
		}
	}
	return nil
}

func connect(hub *host, bridge netlink.Link, h *host) error {
	ns, err := os.Open(h.netns)
	if err != nil {
		return fmt.Errorf("%s: %w", h.Name(), err)
	}
	defer ns.Close()
	veth := &netlink.Veth{LinkAttrs: named(h.Name() + "-eth1"), PeerName: "eth1", PeerNamespace: netlink.NsFd(int(ns.Fd()))}
	veth.MasterIndex = bridge.Attrs().Index
	if err := hub.nl.LinkAdd(veth); err != nil {
		return fmt.Errorf("eth1 of %s: %w", h.Name(), err)
	}
	for _, end := range []struct {
		h    *host
		name string
	}{{hub, veth.Name}, {h, "eth1"}} {
		link, err := end.h.nl.LinkByName(end.name)
		if err == nil {
			err = end.h.nl.LinkSetUp(link)
		}
		if err != nil {
			return fmt.Errorf("%s/%s up: %w", end.h.Name(), end.name, err)
		}
	}
	return nil
}

func named(name string) netlink.LinkAttrs {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	return attrs
}
