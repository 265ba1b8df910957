package apiserver

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// labelServiceProxyName marks a Service that another proxy than kube-proxy serves.
const labelServiceProxyName = "service.kubernetes.io/service-proxy-name"

// Changes counts what kube-proxy's informers see: Services that are not headless and do not name another proxy, and the
// EndpointSlices of such Services. kube-proxy counts what it received in
// kubeproxy_sync_proxy_rules_service_changes_total, once for each IP family that it runs, and in
// kubeproxy_sync_proxy_rules_endpoint_changes_total, where a slice counts for its own family only.
//
// Its selectors are (cmd/kube-proxy/app/server.go): up to 1.35, for both, !service.kubernetes.io/service-proxy-name and
// !service.kubernetes.io/headless; since 1.36 the former for Services and the latter for EndpointSlices; and
// spec.clusterIP!=None for Services in all.
type Changes struct {
	Services       int64 // of all families
	EndpointSlices int64 // IPv4EndpointSlices + IPv6EndpointSlices

	IPv4EndpointSlices int64
	IPv6EndpointSlices int64

	// OtherProxyIPv4EndpointSlices and OtherProxyIPv6EndpointSlices are further slices, whose Services name another
	// proxy. kube-proxy 1.36 and later receives and counts them too.
	OtherProxyIPv4EndpointSlices int64
	OtherProxyIPv6EndpointSlices int64
}

// changeCounters follows the changes of all tables.
type changeCounters struct{ changes, existing Changes }

// count takes in a change. An informer receives it, once, if its selector picks the object before or after.
func (n *changeCounters) count(c *change) {
	var seen object
	for _, e := range []*entry{c.new, c.old} {
		if e == nil || n.changes.counter(e.object) == nil {
			continue
		}
		// Where a label that names another proxy comes or goes, every version sees the side without it.
		if seen == nil || !namesOtherProxy(e.object) {
			seen = e.object
		}
		if e == c.new {
			*n.existing.counter(e.object)++
		} else {
			*n.existing.counter(e.object)--
		}
	}
	if seen != nil {
		*n.changes.counter(seen)++
	}
}

func namesOtherProxy(o object) bool {
	_, names := o.GetLabels()[labelServiceProxyName]
	return names
}

// counter returns the counter for an object, or nil if kube-proxy does not see it.
func (n *Changes) counter(o object) *int64 {
	otherProxy := namesOtherProxy(o)
	switch o := o.(type) {
	case *corev1.Service:
		if otherProxy || o.Spec.ClusterIP == corev1.ClusterIPNone {
			return nil
		}
		return &n.Services
	case *discoveryv1.EndpointSlice:
		if _, headless := o.Labels[corev1.IsHeadlessService]; headless {
			return nil
		}
		switch {
		case o.AddressType == discoveryv1.AddressTypeIPv4 && !otherProxy:
			return &n.IPv4EndpointSlices
		case o.AddressType == discoveryv1.AddressTypeIPv6 && !otherProxy:
			return &n.IPv6EndpointSlices
		case o.AddressType == discoveryv1.AddressTypeIPv4:
			return &n.OtherProxyIPv4EndpointSlices
		case o.AddressType == discoveryv1.AddressTypeIPv6:
			return &n.OtherProxyIPv6EndpointSlices
		}
	}
	return nil
}

// Changes returns how many events a kube-proxy has been or will be sent that has watched since the server began. One that
// began to watch later has been or will be sent the objects that existed then (Existing) and the changes since (the
// difference of Changes).
func (s *Server) Changes() Changes {
	s.store.mutex.RLock()
	defer s.store.mutex.RUnlock()
	return s.store.counters.changes.summed()
}

// Existing returns how many objects exist that a kube-proxy sees: what one that starts now is sent first.
func (s *Server) Existing() Changes {
	s.store.mutex.RLock()
	defer s.store.mutex.RUnlock()
	return s.store.counters.existing.summed()
}

func (n Changes) summed() Changes {
	n.EndpointSlices = n.IPv4EndpointSlices + n.IPv6EndpointSlices
	return n
}
