package apiserver

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// managedBy is the EndpointSlice controller's name.
const managedBy = "endpointslice-controller.k8s.io"

// mostEndpoints is how many endpoints the controller puts into one slice (--max-endpoints-per-slice).
const mostEndpoints = 100

// selectorKey is the label under which a Service with a selector is found, if it is one that gets EndpointSlices.
func selectorKey(o object) (labelKey, bool) {
	svc := o.(*corev1.Service)
	if len(svc.Spec.Selector) == 0 || !needsClusterIP(svc) {
		return labelKey{}, false
	}
	label := slices.Min(slices.Collect(maps.Keys(svc.Spec.Selector)))
	return labelKey{svc.Namespace, label, svc.Spec.Selector[label]}, true
}

// selects reports whether a Service's selector picks a pod.
func selects(svc *corev1.Service, pod *corev1.Pod) bool {
	for label, value := range svc.Spec.Selector {
		if got, ok := pod.Labels[label]; !ok || got != value {
			return false
		}
	}
	return true
}

// servicesOf returns the Services that a change of a pod bears on. The caller holds the mutex.
func (s *store) servicesOf(pod *corev1.Pod) []key {
	var found []key
	for label, value := range pod.Labels {
		for k := range s.servicesBySelector[labelKey{pod.Namespace, label, value}] {
			if selects(s.get(services, k).object.(*corev1.Service), pod) {
				found = append(found, k)
			}
		}
	}
	return found
}

// podsOf returns the pods that a Service selects, by name. The caller holds the mutex.
func (s *store) podsOf(svc *corev1.Service) []*corev1.Pod {
	var fewest map[key]struct{}
	first := true
	for label, value := range svc.Spec.Selector {
		under := s.podsByLabel[labelKey{svc.Namespace, label, value}]
		if first || len(under) < len(fewest) {
			fewest, first = under, false
		}
	}
	var found []*corev1.Pod
	for k := range fewest {
		if pod := s.get(pods, k).object.(*corev1.Pod); selects(svc, pod) {
			found = append(found, pod)
		}
	}
	slices.SortFunc(found, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// syncEndpointSlices brings the EndpointSlices of a Service up to date, as the EndpointSlice controller does
// (k8s.io/endpointslice): it leaves those of a Service without selector alone. The slices of a Service that is gone are
// deleted, given ones among them. The caller holds the mutex and announces.
func (s *store) syncEndpointSlices(k key, now time.Time) {
	existing := s.slicesOf(k)
	stored := s.get(services, k)
	if stored == nil {
		for _, slice := range existing {
			s.remove(endpointSlices, keyOf(slice))
		}
		return
	}
	svc := stored.object.(*corev1.Service)
	if _, ok := selectorKey(svc); !ok {
		return
	}
	generated := slices.DeleteFunc(existing, func(e *discoveryv1.EndpointSlice) bool {
		return e.Labels[discoveryv1.LabelManagedBy] != managedBy
	})
	selected := s.podsOf(svc)
	var wanted []*discoveryv1.EndpointSlice
	for _, family := range svc.Spec.IPFamilies {
		addressType := discoveryv1.AddressType(family)
		var before []*discoveryv1.EndpointSlice
		for _, slice := range generated {
			if slice.AddressType == addressType {
				before = append(before, slice)
			}
		}
		wanted = append(wanted, s.slicesFor(svc, addressType, selected, before)...)
	}
	s.replaceSlices(svc, generated, wanted, now)
}

// slicesOf returns the EndpointSlices of a Service by name. The caller holds the mutex.
func (s *store) slicesOf(service key) []*discoveryv1.EndpointSlice {
	var found []*discoveryv1.EndpointSlice
	for k := range s.slicesByService[service] {
		found = append(found, s.get(endpointSlices, k).object.(*discoveryv1.EndpointSlice))
	}
	slices.SortFunc(found, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// endpointGroup is the endpoints that share ports, and therefore slices.
type endpointGroup struct {
	ports     []discoveryv1.EndpointPort
	endpoints []discoveryv1.Endpoint
}

// slicesFor returns the slices that a Service should have for an address type. Endpoints stay in the slice in which they
// were before; new ones go where there is room.
func (s *store) slicesFor(svc *corev1.Service, addressType discoveryv1.AddressType, selected []*corev1.Pod, before []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	var groups []*endpointGroup
	for _, pod := range selected {
		e, ok := s.endpoint(svc, pod, addressType)
		if !ok {
			continue
		}
		ports := endpointPorts(svc, pod)
		i := slices.IndexFunc(groups, func(g *endpointGroup) bool { return apiequality.Semantic.DeepEqual(g.ports, ports) })
		if i < 0 {
			i = len(groups)
			groups = append(groups, &endpointGroup{ports: ports})
		}
		groups[i].endpoints = append(groups[i].endpoints, e)
	}
	var wanted []*discoveryv1.EndpointSlice
	for _, g := range groups {
		wanted = append(wanted, g.fill(before)...)
	}
	if len(wanted) == 0 {
		// A Service without endpoints has one empty slice.
		wanted = []*discoveryv1.EndpointSlice{{Ports: []discoveryv1.EndpointPort{}, Endpoints: []discoveryv1.Endpoint{}}}
	}
	s.nameSlices(svc, addressType, wanted, before)
	return wanted
}

// nameSlices names new slices: after those of before that are wanted no more, so that one update takes the place of a
// deletion and a creation, as the controller has it; then as nothing is named yet.
func (s *store) nameSlices(svc *corev1.Service, addressType discoveryv1.AddressType, wanted, before []*discoveryv1.EndpointSlice) {
	used := map[string]bool{}
	for _, slice := range wanted {
		used[slice.Name] = true
	}
	var names []string
	for _, slice := range before {
		if !used[slice.Name] {
			names = append(names, slice.Name)
		}
	}
	n := 0
	for _, slice := range wanted {
		slice.AddressType = addressType
		if slice.Name != "" {
			continue
		}
		for len(names) == 0 {
			n++
			name := sliceName(svc.Name, addressType, n)
			if !used[name] && s.get(endpointSlices, key{Namespace: svc.Namespace, Name: name}) == nil {
				names = append(names, name)
			}
		}
		slice.Name, names = names[0], names[1:]
	}
}

// sliceName is "web-ipv4", "web-ipv4-2", ...: unlike the controller's random names, the same in each run.
func sliceName(service string, addressType discoveryv1.AddressType, n int) string {
	name := service + "-" + strings.ToLower(string(addressType))
	if n > 1 {
		name += fmt.Sprintf("-%d", n)
	}
	return name
}

// fill distributes a group's endpoints over the slices that already hold endpoints of these ports, and new ones.
func (g *endpointGroup) fill(before []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	left := map[types.UID]discoveryv1.Endpoint{}
	for _, e := range g.endpoints {
		left[e.TargetRef.UID] = e
	}
	var filled []*discoveryv1.EndpointSlice
	for _, old := range before {
		if !apiequality.Semantic.DeepEqual(old.Ports, g.ports) {
			continue
		}
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: old.Name}, Ports: g.ports}
		for _, e := range old.Endpoints {
			if e.TargetRef == nil {
				continue // not the generator's
			}
			if current, ok := left[e.TargetRef.UID]; ok {
				slice.Endpoints = append(slice.Endpoints, current)
				delete(left, e.TargetRef.UID)
			}
		}
		filled = append(filled, slice)
	}
	for _, e := range g.endpoints {
		if _, ok := left[e.TargetRef.UID]; !ok {
			continue
		}
		i := slices.IndexFunc(filled, func(f *discoveryv1.EndpointSlice) bool { return len(f.Endpoints) < mostEndpoints })
		if i < 0 {
			i = len(filled)
			filled = append(filled, &discoveryv1.EndpointSlice{Ports: g.ports})
		}
		filled[i].Endpoints = append(filled[i].Endpoints, e)
	}
	return slices.DeleteFunc(filled, func(f *discoveryv1.EndpointSlice) bool { return len(f.Endpoints) == 0 })
}

// replaceSlices stores what is wanted and differs, and deletes the generated slices that are not wanted.
func (s *store) replaceSlices(svc *corev1.Service, generated, wanted []*discoveryv1.EndpointSlice, now time.Time) {
	for _, slice := range wanted {
		slice.Namespace = svc.Namespace
		slice.Labels = sliceLabels(svc)
		slice.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(svc, services.gvk())}
		stored := s.get(endpointSlices, keyOf(slice))
		if stored == nil {
			setCreated(slice)
		} else {
			// The annotation tells when the endpoints last changed, so it is none of the changes itself.
			slice.Annotations = stored.object.GetAnnotations()
			if !carryOver(endpointSlices, slice, stored.object) {
				continue
			}
		}
		slice.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: now.UTC().Format(time.RFC3339Nano)}
		s.put(endpointSlices, slice)
	}
	for _, slice := range generated {
		if !slices.ContainsFunc(wanted, func(w *discoveryv1.EndpointSlice) bool { return w.Name == slice.Name }) {
			s.remove(endpointSlices, keyOf(slice))
		}
	}
}

// sliceLabels are the Service's labels, and those that say whose slice it is.
func sliceLabels(svc *corev1.Service) map[string]string {
	labels := maps.Clone(svc.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	delete(labels, corev1.IsHeadlessService)
	if isHeadless(svc) {
		labels[corev1.IsHeadlessService] = ""
	}
	labels[discoveryv1.LabelServiceName] = svc.Name
	labels[discoveryv1.LabelManagedBy] = managedBy
	return labels
}

// endpoint makes an endpoint of a pod; there is none while the pod has no address of that type, nor once it is done.
func (s *store) endpoint(svc *corev1.Service, pod *corev1.Pod, addressType discoveryv1.AddressType) (discoveryv1.Endpoint, bool) {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return discoveryv1.Endpoint{}, false
	}
	var addresses []string
	for _, ip := range pod.Status.PodIPs {
		if string(familyOf(netip.MustParseAddr(ip.IP))) == string(addressType) {
			addresses = append(addresses, ip.IP)
		}
	}
	if len(addresses) == 0 {
		return discoveryv1.Endpoint{}, false
	}
	serving := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	terminating := pod.DeletionTimestamp != nil
	e := discoveryv1.Endpoint{
		Addresses: addresses,
		Conditions: discoveryv1.EndpointConditions{
			Ready:       new(svc.Spec.PublishNotReadyAddresses || serving && !terminating),
			Serving:     new(serving),
			Terminating: new(terminating),
		},
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
	}
	if pod.Spec.Hostname != "" && pod.Spec.Subdomain == svc.Name {
		e.Hostname = new(pod.Spec.Hostname)
	}
	if pod.Spec.NodeName != "" {
		e.NodeName = new(pod.Spec.NodeName)
		if node := s.get(nodes, key{Name: pod.Spec.NodeName}); node != nil {
			if zone := node.object.GetLabels()[corev1.LabelTopologyZone]; zone != "" {
				e.Zone = new(zone)
			}
		}
	}
	e.Hints = hints(svc, &e)
	return e, true
}

// hints are those of trafficDistribution (k8s.io/endpointslice/trafficdist).
func hints(svc *corev1.Service, e *discoveryv1.Endpoint) *discoveryv1.EndpointHints {
	if svc.Spec.TrafficDistribution == nil || !*e.Conditions.Ready {
		return nil
	}
	h := &discoveryv1.EndpointHints{}
	if e.Zone != nil {
		h.ForZones = []discoveryv1.ForZone{{Name: *e.Zone}}
	}
	if e.NodeName != nil && *svc.Spec.TrafficDistribution == corev1.ServiceTrafficDistributionPreferSameNode {
		h.ForNodes = []discoveryv1.ForNode{{Name: *e.NodeName}}
	}
	if h.ForZones == nil && h.ForNodes == nil {
		return nil
	}
	return h
}

// endpointPorts resolves a Service's target ports on a pod; a port that the pod does not name is left out.
func endpointPorts(svc *corev1.Service, pod *corev1.Pod) []discoveryv1.EndpointPort {
	ports := []discoveryv1.EndpointPort{}
	for _, p := range svc.Spec.Ports {
		port := p.TargetPort.IntVal
		if p.TargetPort.Type == intstr.String {
			var ok bool
			if port, ok = containerPort(pod, p.TargetPort.StrVal, p.Protocol); !ok {
				continue
			}
		}
		ports = append(ports, discoveryv1.EndpointPort{Name: new(p.Name), Port: new(port), Protocol: new(p.Protocol), AppProtocol: p.AppProtocol})
	}
	return ports
}

func containerPort(pod *corev1.Pod, name string, protocol corev1.Protocol) (int32, bool) {
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			if p.Name == name && p.Protocol == protocol {
				return p.ContainerPort, true
			}
		}
	}
	return 0, false
}
