package bench

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Ports of the Services and of what answers for their endpoints.
const (
	servicePort  = 80
	firstPort    = 8080 // and up: one for each time that the endpoints' addresses are used up
	nodePorts    = 3    // how many Services have a NodePort beside their ClusterIP
	mostPerSlice = 100  // the EndpointSlice controller's default
)

// endpointRange are the addresses of all endpoints. They belong to the pods' network; server pod s1 answers for every one of them, so
// that any Service can be connected to, over the same path.
var endpointRange = netip.MustParsePrefix("10.244.128.0/17")

// pool hands out endpoint addresses, each with one port, until they are used up; then again with the next port.
type pool struct{ next int }

const poolSize = 1<<15 - 2 // of endpointRange, without its first and last address

// take returns n addresses that share a port.
func (p *pool) take(n int) (addrs []netip.Addr, port int) {
	if left := poolSize - p.next%poolSize; left < n {
		p.next += left
	}
	base := endpointRange.Addr().As4()
	for i := range n {
		a := base
		number := (p.next+i)%poolSize + 1
		a[2] |= byte(number >> 8)
		a[3] = byte(number)
		addrs = append(addrs, netip.AddrFrom4(a))
	}
	port = firstPort + p.next/poolSize
	p.next += n
	return addrs, port
}

// ports is how many ports the endpoints handed out so far use.
func (p *pool) ports() int { return p.next/poolSize + 1 }

// service is a Service and what serves it.
type service struct {
	object *corev1.Service
	slices []*discoveryv1.EndpointSlice
	other  netip.Addr // of the first endpoint, where churn has it change between two
}

func (s *service) name() string { return s.object.Name }

// objects are what the API server is given.
func (s *service) objects() []runtime.Object {
	all := []runtime.Object{s.object}
	for _, slice := range s.slices {
		all = append(all, slice)
	}
	return all
}

// endpoints are the addresses and ports that a connection to the Service may arrive at.
func (s *service) endpoints() map[netip.AddrPort]bool {
	all := map[netip.AddrPort]bool{}
	for _, slice := range s.slices {
		for _, e := range slice.Endpoints {
			all[netip.AddrPortFrom(netip.MustParseAddr(e.Addresses[0]), uint16(*slice.Ports[0].Port))] = true
		}
	}
	return all
}

// newService makes a Service with endpoints of its own.
func newService(name string, endpoints int, p *pool) *service {
	s := &service{object: &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: corev1.NamespaceDefault},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: servicePort, Protocol: corev1.ProtocolTCP}}},
	}}
	for begin := 0; begin < endpoints; begin += mostPerSlice {
		addrs, port := p.take(min(mostPerSlice, endpoints-begin))
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s-%d", name, begin/mostPerSlice), Namespace: corev1.NamespaceDefault,
				Labels: map[string]string{discoveryv1.LabelServiceName: name},
			},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(port)), Protocol: new(corev1.ProtocolTCP)}},
		}
		for _, a := range addrs {
			slice.Endpoints = append(slice.Endpoints, endpoint(a))
		}
		s.slices = append(s.slices, slice)
	}
	return s
}

// endpoint is one on the other node, as the API has it and as nearly all are to a node of a cluster: ipvs mode runs ipset once more for
// each that is its own. Its packets go to s1 on n1 all the same.
func endpoint(a netip.Addr) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses: []string{a.String()}, NodeName: new("n2"),
		Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
	}
}

// replaceEndpoint gives the Service's first endpoint a new address, and returns it. The slice keeps its port.
func (s *service) replaceEndpoint(p *pool) netip.AddrPort {
	slice := s.slices[0].DeepCopy()
	var a netip.Addr
	for port := -1; port != int(*slice.Ports[0].Port); {
		var addrs []netip.Addr
		addrs, port = p.take(1)
		if a = addrs[0]; port > int(*slice.Ports[0].Port) {
			slice.Ports[0].Port = new(int32(port))
		}
	}
	slice.Endpoints[0] = endpoint(a)
	s.slices[0] = slice
	return netip.AddrPortFrom(a, uint16(*slice.Ports[0].Port))
}

// population is n Services with m endpoints each, the last few with a NodePort.
func population(n, m int, p *pool) []*service {
	all := make([]*service, n)
	for i := range n {
		all[i] = newService(fmt.Sprintf("svc-%05d", i), m, p)
		if i >= n-nodePorts {
			all[i].object.Spec.Type = corev1.ServiceTypeNodePort
		}
	}
	return all
}
