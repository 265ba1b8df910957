package apiserver

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// allocators hand out cluster IPs and node ports, always the lowest that are free, so that the same calls in the same
// order allocate the same. They follow pkg/registry/core/service/storage/alloc.go of Kubernetes.
type allocators struct {
	primary corev1.IPFamily
	ips     map[corev1.IPFamily]*ipAllocator
	ports   *portAllocator
	// journal undoes what was done since the last commit, in reverse.
	journal []func()
}

func newAllocators(c Config) allocators {
	a := allocators{
		primary: familyOf(c.ServiceCIDRs[0].Addr()),
		ips:     map[corev1.IPFamily]*ipAllocator{},
		ports:   &portAllocator{ports: c.NodePorts, owner: map[int32]key{}},
	}
	for _, p := range c.ServiceCIDRs {
		a.addRange(p)
	}
	a.commit()
	return a
}

func familyOf(ip netip.Addr) corev1.IPFamily {
	if ip.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

func (a *allocators) addRange(p netip.Prefix) {
	p = p.Masked()
	family := familyOf(p.Addr())
	if a.ips[family] == nil {
		a.ips[family] = &ipAllocator{owner: map[netip.Addr]key{}}
		a.journal = append(a.journal, func() { delete(a.ips, family) })
	}
	ips := a.ips[family]
	before := ips.ranges
	ips.ranges = append(ips.ranges[:len(ips.ranges):len(ips.ranges)], newIPRange(p))
	a.journal = append(a.journal, func() { ips.ranges = before })
}

// commit keeps what was done since the last commit; rollback undoes it.
func (a *allocators) commit() { a.journal = nil }

func (a *allocators) rollback() {
	for i := len(a.journal) - 1; i >= 0; i-- {
		a.journal[i]()
	}
	a.journal = nil
}

// release frees what old holds and updated, which may be nil, does not name.
func (a *allocators) release(old, updated *corev1.Service) {
	if old == nil {
		return
	}
	keepIPs, keepPorts := map[netip.Addr]bool{}, map[int32]bool{}
	if updated != nil {
		for _, ip := range clusterIPs(updated) {
			keepIPs[ip] = true
		}
		for _, port := range nodePorts(updated) {
			keepPorts[port] = true
		}
	}
	k := keyOf(old)
	for _, ip := range clusterIPs(old) {
		if ips := a.ips[familyOf(ip)]; !keepIPs[ip] && ips != nil {
			ips.free(ip)
			a.journal = append(a.journal, func() { ips.owner[ip] = k })
		}
	}
	for _, port := range nodePorts(old) {
		if owner, held := a.ports.owner[port]; held && owner == k && !keepPorts[port] {
			delete(a.ports.owner, port)
			a.journal = append(a.journal, func() { a.ports.owner[port] = k })
		}
	}
}

// clusterIPs lists the addresses that a Service names.
func clusterIPs(svc *corev1.Service) []netip.Addr {
	var ips []netip.Addr
	for _, text := range svc.Spec.ClusterIPs {
		if ip, err := netip.ParseAddr(text); err == nil {
			ips = append(ips, ip)
		}
	}
	return ips
}

// nodePorts lists the node ports that a Service names, its health check node port among them.
func nodePorts(svc *corev1.Service) []int32 {
	var ports []int32
	for _, p := range svc.Spec.Ports {
		if p.NodePort != 0 {
			ports = append(ports, p.NodePort)
		}
	}
	if svc.Spec.HealthCheckNodePort != 0 {
		ports = append(ports, svc.Spec.HealthCheckNodePort)
	}
	return ports
}

// reserve takes the cluster IPs and node ports that a Service names.
func (a *allocators) reserve(svc *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	k := keyOf(svc)
	spec := field.NewPath("spec")
	for i, text := range svc.Spec.ClusterIPs {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			continue // "None"
		}
		path := spec.Child("clusterIPs").Index(i)
		ips := a.ips[familyOf(ip)]
		if ips == nil {
			errs = append(errs, field.Invalid(path, text, fmt.Sprintf("%s is not configured on this cluster", familyOf(ip))))
		} else if err := a.takeIP(ips, ip, k); err != nil {
			errs = append(errs, field.Invalid(path, text, err.Error()))
		}
	}
	for i, p := range svc.Spec.Ports {
		if p.NodePort == 0 {
			continue
		}
		if err := a.takePort(p.NodePort, k); err != nil {
			errs = append(errs, field.Invalid(spec.Child("ports").Index(i).Child("nodePort"), p.NodePort, err.Error()))
		}
	}
	if port := svc.Spec.HealthCheckNodePort; port != 0 {
		if err := a.takePort(port, k); err != nil {
			errs = append(errs, field.Invalid(spec.Child("healthCheckNodePort"), port, err.Error()))
		}
	}
	return errs
}

// fill gives a Service the cluster IPs and node ports that it needs and does not name.
func (a *allocators) fill(svc *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	k := keyOf(svc)
	spec := field.NewPath("spec")
	if needsClusterIP(svc) && !isHeadless(svc) {
		for _, family := range svc.Spec.IPFamilies[min(len(svc.Spec.ClusterIPs), len(svc.Spec.IPFamilies)):] {
			ip, err := a.ips[family].lowest()
			if err == nil {
				err = a.takeIP(a.ips[family], ip, k)
			}
			if err != nil {
				errs = append(errs, field.Invalid(spec.Child("clusterIPs"), svc.Spec.ClusterIPs, "failed to allocate an IP: "+err.Error()))
				break
			}
			svc.Spec.ClusterIPs = append(svc.Spec.ClusterIPs, ip.String())
		}
		if len(svc.Spec.ClusterIPs) > 0 {
			svc.Spec.ClusterIP = svc.Spec.ClusterIPs[0]
		}
	}
	if needsNodePorts(svc) {
		errs = append(errs, a.fillNodePorts(svc)...)
	}
	if needsHealthCheck(svc) && svc.Spec.HealthCheckNodePort == 0 {
		port, err := a.takeLowestPort(k)
		if err != nil {
			errs = append(errs, field.Invalid(spec.Child("healthCheckNodePort"), 0, err.Error()))
		}
		svc.Spec.HealthCheckNodePort = port
	}
	return errs
}

// fillNodePorts gives the same node port to the same port of several protocols.
func (a *allocators) fillNodePorts(svc *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	taken := map[int32]int32{} // port -> node port
	for _, p := range svc.Spec.Ports {
		if p.NodePort != 0 && taken[p.Port] == 0 {
			taken[p.Port] = p.NodePort
		}
	}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if p.NodePort != 0 {
			continue
		}
		if taken[p.Port] == 0 {
			port, err := a.takeLowestPort(keyOf(svc))
			if err != nil {
				errs = append(errs, field.Invalid(field.NewPath("spec", "ports").Index(i).Child("nodePort"), 0, err.Error()))
				continue
			}
			taken[p.Port] = port
		}
		p.NodePort = taken[p.Port]
	}
	return errs
}

func (a *allocators) takeIP(ips *ipAllocator, ip netip.Addr, k key) error {
	if owner, held := ips.owner[ip]; held {
		if owner == k {
			return nil
		}
		return fmt.Errorf("provided IP is already allocated to Service %s", owner)
	}
	if err := ips.usable(ip); err != nil {
		return err
	}
	ips.owner[ip] = k
	a.journal = append(a.journal, func() { ips.free(ip) })
	return nil
}

func (a *allocators) takePort(port int32, k key) error {
	// As in Kubernetes, a port belongs to one Service for all protocols.
	if owner, held := a.ports.owner[port]; held {
		if owner == k {
			return nil
		}
		return fmt.Errorf("provided port is already allocated to Service %s", owner)
	}
	if port < a.ports.ports.First || port > a.ports.ports.Last {
		return fmt.Errorf("provided port is not in the valid range. The range of valid ports is %d-%d", a.ports.ports.First, a.ports.ports.Last)
	}
	a.ports.owner[port] = k
	a.journal = append(a.journal, func() { delete(a.ports.owner, port) })
	return nil
}

func (a *allocators) takeLowestPort(k key) (int32, error) {
	for port := a.ports.ports.First; port <= a.ports.ports.Last; port++ {
		if _, held := a.ports.owner[port]; !held {
			return port, a.takePort(port, k)
		}
	}
	return 0, fmt.Errorf("no free port in %d-%d", a.ports.ports.First, a.ports.ports.Last)
}

// portAllocator knows whose each node port is.
type portAllocator struct {
	ports PortRange
	owner map[int32]key
}

// ipAllocator knows whose each cluster IP of a family is.
type ipAllocator struct {
	ranges []*ipRange
	owner  map[netip.Addr]key
}

// ipRange is a ServiceCIDR.
type ipRange struct {
	netip.Prefix
	first netip.Addr // of those handed out; below it are addresses for Services that ask for them
	next  netip.Addr // none from first up to here is free
}

// staticAddresses is how many addresses at the start of a range are left to Services that ask for them.
const staticAddresses = 10

func newIPRange(p netip.Prefix) *ipRange {
	first := p.Addr().Next()
	if p.Addr().BitLen()-p.Bits() > 4 {
		for range staticAddresses - 1 {
			first = first.Next()
		}
	}
	return &ipRange{p, first, first}
}

// usable reports whether ip may be a cluster IP in r: neither the network's own address nor IPv4's broadcast address.
func (r *ipRange) usable(ip netip.Addr) bool {
	if !r.Contains(ip) || ip == r.Addr() && r.Bits() < ip.BitLen() {
		return false
	}
	return !ip.Is4() || r.Bits() >= 31 || r.Contains(ip.Next())
}

func (a *ipAllocator) usable(ip netip.Addr) error {
	for _, r := range a.ranges {
		if r.usable(ip) {
			return nil
		}
	}
	return fmt.Errorf("provided IP is not in the valid range. The range of valid IPs is %s", a)
}

func (a *ipAllocator) String() string {
	texts := make([]string, len(a.ranges))
	for i, r := range a.ranges {
		texts[i] = r.Prefix.String()
	}
	return strings.Join(texts, ", ")
}

// lowest returns the lowest free address that is handed out; when there is none, the lowest of the static ones.
func (a *ipAllocator) lowest() (netip.Addr, error) {
	for _, r := range a.ranges {
		for ; r.usable(r.next); r.next = r.next.Next() {
			if _, held := a.owner[r.next]; !held {
				return r.next, nil
			}
		}
	}
	for _, r := range a.ranges {
		for ip := r.Addr().Next(); ip.Less(r.first) && r.usable(ip); ip = ip.Next() {
			if _, held := a.owner[ip]; !held {
				return ip, nil
			}
		}
	}
	return netip.Addr{}, fmt.Errorf("no free address in %s", a)
}

func (a *ipAllocator) free(ip netip.Addr) {
	delete(a.owner, ip)
	for _, r := range a.ranges {
		if r.Contains(ip) && !ip.Less(r.first) && ip.Less(r.next) {
			r.next = ip
		}
	}
}
