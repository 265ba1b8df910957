package probe

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// Resolution is who on a link claims an address.
type Resolution struct {
	Target netip.Addr
	MACs   []net.HardwareAddr // each once, in the order of their first answers
}

// Answered reports whether anybody claims the address.
func (r Resolution) Answered() bool { return len(r.MACs) > 0 }

// String is "answered by 02:00:00:00:00:01, 02:00:00:00:00:02" or "silent".
func (r Resolution) String() string {
	if !r.Answered() {
		return "silent"
	}
	var macs []string
	for _, m := range r.MACs {
		macs = append(macs, m.String())
	}
	return "answered by " + strings.Join(macs, ", ")
}

// solicitations is how often a neighbor is asked, evenly over the wait: a packet may get lost on a link that has just come up.
const solicitations = 3

// ARP asks on an interface who has an IPv4 address and collects the answers of the whole wait. The sender is the
// interface's own address in the target's subnet, or another one of it.
func ARP(ctx context.Context, ns Netns, iface string, target netip.Addr, wait time.Duration) (Resolution, error) {
	if !target.Unmap().Is4() {
		return Resolution{}, fmt.Errorf("arp %s on %s: not an IPv4 address", target, iface)
	}
	return resolve(ctx, ns, iface, target.Unmap(), wait, arp{})
}

// NDP solicits an IPv6 address on an interface (RFC 4861) and collects the advertisements of the whole wait.
func NDP(ctx context.Context, ns Netns, iface string, target netip.Addr, wait time.Duration) (Resolution, error) {
	if !target.Is6() || target.Is4In6() {
		return Resolution{}, fmt.Errorf("ndp %s on %s: not an IPv6 address", target, iface)
	}
	return resolve(ctx, ns, iface, target.WithZone(""), wait, ndp{})
}

// resolver is a protocol that asks for link-layer addresses.
type resolver interface {
	etherType() uint16
	// solicitation is the frame that asks for target.
	solicitation(mac net.HardwareAddr, source, target netip.Addr) ([]byte, error)
	// answer returns who claims target, if the frame is an answer to source.
	answer(frame gopacket.Packet, source, target netip.Addr) (net.HardwareAddr, bool)
}

func resolve(ctx context.Context, ns Netns, iface string, target netip.Addr, wait time.Duration, proto resolver) (Resolution, error) {
	fail := func(err error) (Resolution, error) {
		return Resolution{}, fmt.Errorf("resolve %s on %s: %w", target, iface, err)
	}
	l, err := lookupLink(ns, iface)
	if err != nil {
		return fail(err)
	}
	source, ok := l.sourceFor(target)
	if !ok || len(l.mac) != 6 {
		return fail(fmt.Errorf("the interface has no address of the target's family, or is no Ethernet"))
	}
	frame, err := proto.solicitation(l.mac, source, target)
	if err != nil {
		return fail(err)
	}
	s, err := openPacket(ns, l.index, unix.SOCK_RAW, proto.etherType())
	if err != nil {
		return fail(err)
	}
	defer s.file.Close()
	release := interruptOn(ctx, s.file)
	defer release()

	r := Resolution{Target: target}
	buf := make([]byte, 64<<10)
	started := time.Now()
	for i := range solicitations {
		if err := s.send(frame, l.index); err != nil {
			return fail(err)
		}
		s.file.SetReadDeadline(started.Add(wait * time.Duration(i+1) / solicitations))
		if ctx.Err() != nil { // it may have ended before the deadline was set
			break
		}
		s.raw.Read(func(fd uintptr) bool { // until the deadline
			return s.receive(fd, buf, func(p packet) bool {
				frame := gopacket.NewPacket(p.data, layers.LayerTypeEthernet, gopacket.DecodeOptions{NoCopy: true})
				if mac, ok := proto.answer(frame, source, target); ok {
					r.add(mac)
				}
				return false
			})
		})
	}
	if err := context.Cause(ctx); err != nil {
		return fail(err)
	}
	return r, nil
}

func (r *Resolution) add(mac net.HardwareAddr) {
	known := slices.ContainsFunc(r.MACs, func(m net.HardwareAddr) bool { return bytes.Equal(m, mac) })
	if !known {
		r.MACs = append(r.MACs, bytes.Clone(mac))
	}
}

func serialize(parts ...gopacket.SerializableLayer) ([]byte, error) {
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, parts...)
	return buf.Bytes(), err
}

type arp struct{}

func (arp) etherType() uint16 { return unix.ETH_P_ARP }

func (arp) solicitation(mac net.HardwareAddr, source, target netip.Addr) ([]byte, error) {
	return serialize(
		&layers.Ethernet{SrcMAC: mac, DstMAC: layers.EthernetBroadcast, EthernetType: layers.EthernetTypeARP},
		&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
			Operation: layers.ARPRequest, SourceHwAddress: mac, SourceProtAddress: source.AsSlice(),
			DstHwAddress: make([]byte, 6), DstProtAddress: target.AsSlice()})
}

func (arp) answer(frame gopacket.Packet, source, target netip.Addr) (net.HardwareAddr, bool) {
	a, ok := frame.Layer(layers.LayerTypeARP).(*layers.ARP)
	if !ok || a.Operation != layers.ARPReply || !bytes.Equal(a.SourceProtAddress, target.AsSlice()) || !bytes.Equal(a.DstProtAddress, source.AsSlice()) {
		return nil, false
	}
	return a.SourceHwAddress, true
}

type ndp struct{}

func (ndp) etherType() uint16 { return unix.ETH_P_IPV6 }

func (ndp) solicitation(mac net.HardwareAddr, source, target netip.Addr) ([]byte, error) {
	t := target.As16()
	group := net.IP{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, t[13], t[14], t[15]}
	ip := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolICMPv6, HopLimit: 255, SrcIP: source.AsSlice(), DstIP: group}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeNeighborSolicitation, 0)}
	if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	return serialize(
		&layers.Ethernet{SrcMAC: mac, DstMAC: net.HardwareAddr{0x33, 0x33, 0xff, t[13], t[14], t[15]}, EthernetType: layers.EthernetTypeIPv6},
		ip, icmp,
		&layers.ICMPv6NeighborSolicitation{TargetAddress: target.AsSlice(),
			Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: mac}}})
}

func (ndp) answer(frame gopacket.Packet, source, target netip.Addr) (net.HardwareAddr, bool) {
	eth, _ := frame.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	ip, _ := frame.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
	na, _ := frame.Layer(layers.LayerTypeICMPv6NeighborAdvertisement).(*layers.ICMPv6NeighborAdvertisement)
	if eth == nil || ip == nil || na == nil || !na.TargetAddress.Equal(target.AsSlice()) || !ip.DstIP.Equal(source.AsSlice()) {
		return nil, false
	}
	for _, o := range na.Options {
		if o.Type == layers.ICMPv6OptTargetAddress && len(o.Data) == 6 {
			return o.Data, true
		}
	}
	return eth.SrcMAC, true
}
