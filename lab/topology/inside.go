package topology

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// networks are all that a scenario may send traffic to: the nodes', the floating addresses', the pods' and the Services'.
func (t Topology) networks() []netip.Prefix {
	all := append(append([]netip.Prefix{}, t.PodCIDRs...), t.ServiceCIDR...)
	for _, cidr := range []string{"192.168.10.0/24", "192.168.20.0/24", "192.168.30.0/24", "fd00:10::/64", "fd00:20::/64", "fd00:30::/64"} {
		all = append(all, netip.MustParsePrefix(cidr))
	}
	return all
}

// CheckInside refuses objects that would lead traffic to an address outside the env: nothing is there, and a typo in an
// address must not look like a finding.
func (t Topology) CheckInside(objects []runtime.Object) error {
	for _, o := range objects {
		var name string
		var addresses []string
		switch o := o.(type) {
		case *discoveryv1.EndpointSlice:
			name = "EndpointSlice " + o.Name
			for _, e := range o.Endpoints {
				addresses = append(addresses, e.Addresses...)
			}
		case *corev1.Service:
			name = "Service " + o.Name
			addresses = append(addresses, o.Spec.ExternalIPs...)
			for _, in := range o.Status.LoadBalancer.Ingress {
				addresses = append(addresses, in.IP)
			}
		}
		for _, text := range addresses {
			if addr, err := netip.ParseAddr(text); err == nil && !t.inside(addr) {
				return fmt.Errorf("%s: address %s is outside the env, whose networks are %v", name, addr, t.networks())
			}
		}
	}
	return nil
}

func (t Topology) inside(addr netip.Addr) bool {
	for _, p := range t.networks() {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
