package netns

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"kplab/lab/topology"
)

// linkDeadline is generous: a link that is not up by then never will be.
const linkDeadline = 30 * time.Second

// network is everything built from a topology: the wire and the hosts on it.
type network struct {
	wire     *host
	hosts    map[string]*host
	order    []string
	services []netip.Prefix
}

// build makes the hosts and joins them. On error what was made is gone.
func build(t topology.Topology, root string, binaries map[string]string) (_ *network, err error) {
	n := &network{hosts: map[string]*host{}, services: t.ServiceCIDR}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	if err := n.makeHosts(t, root, binaries); err != nil {
		return nil, err
	}
	br0, err := n.wire.addBridge("br-eth0")
	if err != nil {
		return nil, err
	}
	br1, err := n.wire.addBridge("br-eth1")
	if err != nil {
		return nil, err
	}
	for _, name := range n.order {
		h := n.hosts[name]
		if h.spec.On != "" {
			continue
		}
		if err := connect(n.wire, name+"-eth0", br0, h, "eth0", mac(0, h.spec.Index)); err != nil {
			return nil, err
		}
		if h.spec.Mgmt {
			if err := connect(n.wire, name+"-eth1", br1, h, "eth1", mac(1, h.spec.Index)); err != nil {
				return nil, err
			}
		}
		if err := h.addAddresses(); err != nil {
			return nil, err
		}
	}
	for _, name := range n.order {
		if h := n.hosts[name]; h.spec.On != "" {
			if err := n.attachPod(h); err != nil {
				return nil, err
			}
		}
	}
	if err := n.addDefaultRoutes(); err != nil {
		return nil, err
	}
	if err := n.addRoutes(); err != nil {
		return nil, err
	}
	return n, n.waitUp()
}

// addDefaultRoutes gives the nodes a way out, as every node has one: what is in no table and no rule goes to ext, which
// forwards nothing. Without it a local process could not even begin to connect to a ClusterIP.
func (n *network) addDefaultRoutes() error {
	for _, name := range n.order {
		h := n.hosts[name]
		if h.spec.Role != topology.NodeRole {
			continue
		}
		for _, v6 := range []bool{false, true} {
			ext, _ := n.hosts["ext"].spec.Address("primary", v6)
			if err := h.addRoute("eth0", topology.DefaultRoute(v6), ext.Addr()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *network) makeHosts(t topology.Topology, root string, binaries map[string]string) error {
	specs := append([]topology.HostSpec{{Name: "wire"}}, t.Hosts...)
	made := make([]*host, len(specs))
	var g errgroup.Group
	for i, spec := range specs {
		g.Go(func() (err error) {
			if made[i], err = newHost(spec, root, binaries); err != nil {
				return err
			}
			return made[i].setSysctls()
		})
	}
	err := g.Wait()
	for i, h := range made {
		switch {
		case h == nil:
		case i == 0:
			n.wire = h
		default:
			n.hosts[h.spec.Name] = h
			n.order = append(n.order, h.spec.Name)
		}
	}
	return err
}

// setSysctls gives every host the same start, whatever the machine's own settings are (a new namespace inherits some).
func (h *host) setSysctls() error {
	settings := [][2]string{
		{"net.ipv6.conf.all.disable_ipv6", "0"}, {"net.ipv6.conf.default.disable_ipv6", "0"},
		{"net.ipv6.conf.all.accept_dad", "0"}, {"net.ipv6.conf.default.accept_dad", "0"},
		{"net.ipv4.conf.all.rp_filter", "0"}, {"net.ipv4.conf.default.rp_filter", "0"},
		{"net.ipv4.conf.all.arp_ignore", "0"}, {"net.ipv4.conf.all.arp_announce", "0"},
		{"net.ipv4.conf.all.route_localnet", "0"},
		// By default a host answers a peer with ICMP errors once a second: the seventh refusal in a row would be a timeout. The
		// mask, not the rate: with icmp_ratelimit=0 the errors of unreachable routes go missing.
		{"net.ipv4.icmp_ratemask", "0"}, {"net.ipv6.icmp.ratelimit", "0"},
		{"net.ipv4.ip_forward", "0"}, {"net.ipv6.conf.all.forwarding", "0"},
	}
	if h.spec.Name != "wire" && h.spec.Role == topology.NodeRole {
		settings = append(settings, [][2]string{{"net.ipv4.ip_forward", "1"}, {"net.ipv6.conf.all.forwarding", "1"}}...)
	}
	for _, s := range settings {
		if err := h.setSysctl(s[0], s[1]); err != nil {
			return err
		}
	}
	return nil
}

// addAddresses puts a node's or outside machine's addresses on its NICs, the primary first: the kernel takes the first as
// source.
func (h *host) addAddresses() error {
	for _, a := range []struct{ name, iface string }{
		{"primary", "eth0"}, {"secondary", "eth0"}, {"floating", "eth0"}, {"mgmt", "eth1"},
	} {
		for _, p := range h.spec.Addresses[a.name] {
			if err := h.setAddress(a.iface, p, true); err != nil {
				return err
			}
			if a.name == "floating" || a.name == "secondary" {
				if err := h.deprecate(a.iface, p); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// attachPod joins a pod to its node by a veth pair of its own, routed, as the ptp CNI plugin does.
func (n *network) attachPod(pod *host) error {
	node, ok := n.hosts[pod.spec.On]
	if !ok {
		return fmt.Errorf("pod %s: no node %s", pod.spec.Name, pod.spec.On)
	}
	x := node.spec.Index - 10
	veth := "veth-" + pod.spec.Name
	if err := connect(node, veth, nil, pod, "eth0", mac(1+x, pod.spec.Index)); err != nil {
		return err
	}
	for _, p := range pod.spec.Addresses["primary"] {
		v6 := p.Addr().Is6()
		gateway := topology.PodGateway(x, v6)
		steps := []error{
			node.setAddress(veth, host32(gateway), true),
			node.addRoute(veth, p, netip.Addr{}),
			pod.setAddress("eth0", p, true),
			pod.addRoute("eth0", host32(gateway), netip.Addr{}),
			pod.addRoute("eth0", topology.DefaultRoute(v6), gateway),
		}
		for _, err := range steps {
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// addRoutes tells nodes and outside machines the way to pods and floating addresses of each node, and ext the way to
// Services through n1.
func (n *network) addRoutes() error {
	for _, name := range n.order {
		h := n.hosts[name]
		if h.spec.Role != topology.NodeRole && !h.spec.Routes {
			continue
		}
		for _, v6 := range []bool{false, true} {
			for _, peerName := range n.order {
				peer := n.hosts[peerName]
				if peer.spec.Role != topology.NodeRole || peer == h {
					continue
				}
				via, _ := peer.spec.Address("primary", v6)
				floating, _ := peer.spec.Address("floating", v6)
				for _, dst := range []netip.Prefix{topology.PodCIDR(peer.spec.Index-10, v6), floating} {
					if err := h.addRoute("eth0", dst, via.Addr()); err != nil {
						return err
					}
				}
			}
			if h.spec.Role == topology.OutsideRole {
				n1, _ := n.hosts["n1"].spec.Address("primary", v6) // as a router in front of the cluster would
				for _, cidr := range n.services {
					if cidr.Addr().Is6() != v6 {
						continue
					}
					if err := h.addRoute("eth0", cidr, n1.Addr()); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// waitUp waits until every link carries packets: a veth has its carrier at once and loses what it is given until its
// operational state follows.
func (n *network) waitUp() error {
	deadline := time.Now().Add(linkDeadline)
	pause := time.NewTicker(time.Millisecond)
	defer pause.Stop()
	for _, h := range n.hosts {
		for {
			down, err := h.linksDown()
			if err != nil {
				return err
			}
			if len(down) == 0 {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s: links %s are not up after %v", h.spec.Name, strings.Join(down, ", "), linkDeadline)
			}
			<-pause.C
		}
	}
	return nil
}

func (n *network) close() {
	var g errgroup.Group
	for _, h := range n.hosts {
		g.Go(func() error { h.close(); return nil })
	}
	_ = g.Wait()
	if n.wire != nil {
		n.wire.close()
	}
}
