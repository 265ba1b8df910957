package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Apply creates or updates objects: *corev1.Service, Pod, Node and Namespace, *discoveryv1.EndpointSlice and
// *networkingv1.ServiceCIDR. It validates, defaults and allocates as an API server does and stores all of them or, if any
// is wrong, none. The namespace defaults to "default"; any other must exist or be among objs. An object replaces the
// stored one, except that a status without content keeps the stored status, and that what was allocated is kept. Ports
// and addresses that objs name are taken before any are allocated. An object that changes nothing makes no new version.
//
// A Service with a selector has its EndpointSlices once Apply returns.
//
// The error joins one *ObjectError for each object that is wrong, with the paths of its fields. Apply keeps no reference to objs.
func (s *Server) Apply(ctx context.Context, objs ...runtime.Object) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	s.store.mutex.Lock()
	defer s.store.mutex.Unlock()
	return s.store.apply(objs)
}

// Delete removes an object, and with a Service its EndpointSlices, with a Namespace all that is in it. kind is one of
// those that Apply takes. namespace "" is "default". The error is an *ObjectError for which apierrors.IsNotFound holds if
// there is no such object.
func (s *Server) Delete(ctx context.Context, kind, namespace, name string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("delete %s %s: %w", kind, name, err)
	}
	r, err := resourceOfKind(kind)
	if err != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	k := key{Name: name}
	if r.namespaced {
		k.Namespace = cmp.Or(namespace, metav1.NamespaceDefault)
	}
	s.store.mutex.Lock()
	defer s.store.mutex.Unlock()
	return s.store.delete(r, k)
}

// staged is an object on its way into the store.
type staged struct {
	resource *resource
	object   object
	old      *entry
	errs     field.ErrorList
}

// apply does the work of Apply. The caller holds the mutex.
func (s *store) apply(objs []runtime.Object) error {
	batch := make([]*staged, 0, len(objs))
	seen := map[*resource]map[key]bool{}
	var errs []error
	for _, o := range objs {
		r, known, err := resourceOf(o)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		st := s.stage(r, known.DeepCopyObject().(object))
		k := keyOf(st.object)
		if seen[r] == nil {
			seen[r] = map[key]bool{}
		}
		if seen[r][k] {
			st.errs = append(st.errs, field.Duplicate(field.NewPath("metadata", "name"), k.Name))
		}
		seen[r][k] = true
		batch = append(batch, st)
	}
	// ServiceCIDRs first, since Services may ask for their addresses.
	slices.SortStableFunc(batch, func(a, b *staged) int {
		return cmp.Compare(slices.Index(resources, a.resource), slices.Index(resources, b.resource))
	})
	for _, st := range batch {
		if ns := st.object.GetNamespace(); st.resource.namespaced && s.get(namespaces, key{Name: ns}) == nil && !seen[namespaces][key{Name: ns}] {
			st.errs = append(st.errs, field.NotFound(field.NewPath("metadata", "namespace"), ns))
		}
		s.prepare(st)
	}
	s.allocate(batch)
	for _, st := range batch {
		if len(st.errs) > 0 {
			errs = append(errs, newObjectError(st.resource, keyOf(st.object), st.errs.ToAggregate()))
		}
	}
	if len(errs) > 0 {
		s.rollback()
		return errors.Join(errs...)
	}
	s.commit()
	s.storeAll(batch)
	return nil
}

// stage clears what the server sets itself and finds the stored object.
func (s *store) stage(r *resource, o object) *staged {
	if !r.namespaced {
		o.SetNamespace("")
	} else if o.GetNamespace() == "" {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	o.SetManagedFields(nil)
	o.SetResourceVersion("")
	o.SetUID("")
	o.SetGeneration(0)
	o.SetCreationTimestamp(metav1.Time{})
	return &staged{resource: r, object: o, old: s.get(r, keyOf(o))}
}

// prepare defaults and validates what does not depend on the other objects.
func (s *store) prepare(st *staged) {
	switch o := st.object.(type) {
	case *corev1.Service:
		old := oldOf[*corev1.Service](st)
		if old != nil {
			keepStatus(o, old)
		}
		defaultService(o)
		if old != nil {
			keepAllocated(o, old)
		}
		if len(o.Spec.ClusterIPs) == 0 && o.Spec.ClusterIP != "" && needsClusterIP(o) {
			o.Spec.ClusterIPs = []string{o.Spec.ClusterIP}
		}
		errs := validateService(o, old)
		if len(errs) == 0 {
			errs = s.setFamilies(o, old)
		}
		st.errs = append(st.errs, errs...)
	case *corev1.Pod:
		old := oldOf[*corev1.Pod](st)
		if old != nil {
			keepPodStatus(o, old)
		}
		defaultPod(o)
		st.errs = append(st.errs, validatePod(o)...)
	case *corev1.Node:
		if old := oldOf[*corev1.Node](st); old != nil && len(o.Status.Addresses) == 0 && len(o.Status.Conditions) == 0 {
			o.Status = old.DeepCopy().Status
		}
		st.errs = append(st.errs, validateNode(o)...)
	case *corev1.Namespace:
		defaultNamespace(o)
		st.errs = append(st.errs, validateNamespace(o)...)
	case *networkingv1.ServiceCIDR:
		old := oldOf[*networkingv1.ServiceCIDR](st)
		st.errs = append(st.errs, validateServiceCIDR(o, old)...)
		if old != nil {
			o.Status = old.DeepCopy().Status
			return
		}
		o.Status = readyCIDR()
		if len(st.errs) == 0 {
			for _, p := range rangesOf(o) {
				s.addRange(p)
			}
		}
	case *discoveryv1.EndpointSlice:
		defaultEndpointSlice(o)
		st.errs = append(st.errs, validateEndpointSlice(o, oldOf[*discoveryv1.EndpointSlice](st))...)
	}
}

// oldOf returns the stored version of a staged object, or nil.
func oldOf[T object](st *staged) T {
	if st.old == nil {
		var none T
		return none
	}
	return st.old.object.(T)
}

// allocate gives the valid Services of a batch their addresses and ports: first those that are named, then the rest.
func (s *store) allocate(batch []*staged) {
	each := func(f func(svc, old *corev1.Service) field.ErrorList) {
		for _, st := range batch {
			if svc, ok := st.object.(*corev1.Service); ok && len(st.errs) == 0 {
				st.errs = f(svc, oldOf[*corev1.Service](st))
			}
		}
	}
	each(func(svc, old *corev1.Service) field.ErrorList { s.release(old, svc); return nil })
	each(func(svc, _ *corev1.Service) field.ErrorList { return s.reserve(svc) })
	each(func(svc, _ *corev1.Service) field.ErrorList { return s.fill(svc) })
}

// storeAll stores a batch and what follows from it.
func (s *store) storeAll(batch []*staged) {
	var order []key
	touched := map[key]bool{}
	touch := func(keys ...key) {
		for _, k := range keys {
			if !touched[k] {
				touched[k] = true
				order = append(order, k)
			}
		}
	}
	changed := []*resource{endpointSlices}
	for _, st := range batch {
		if st.old == nil {
			setCreated(st.object)
		} else if !carryOver(st.resource, st.object, st.old.object) {
			continue
		}
		s.put(st.resource, st.object)
		if !slices.Contains(changed, st.resource) {
			changed = append(changed, st.resource)
		}
		switch o := st.object.(type) {
		case *corev1.Service:
			touch(keyOf(o))
		case *corev1.Pod:
			touch(s.servicesOf(o)...)
			if old := oldOf[*corev1.Pod](st); old != nil {
				touch(s.servicesOf(old)...)
			}
		}
	}
	slices.SortFunc(order, compareKeys)
	now := time.Now()
	for _, k := range order {
		s.syncEndpointSlices(k, now)
	}
	s.announce(changed...)
}

// delete does the work of Delete. The caller holds the mutex.
func (s *store) delete(r *resource, k key) error {
	e := s.get(r, k)
	if e == nil {
		return newObjectError(r, k, apierrors.NewNotFound(r.groupResource(), k.Name))
	}
	now := time.Now()
	switch o := e.object.(type) {
	case *corev1.Namespace:
		if k.Name == metav1.NamespaceDefault {
			return newObjectError(r, k, errors.New("this namespace may not be deleted"))
		}
		s.deleteAllIn(k.Name, now)
	case *networkingv1.ServiceCIDR:
		return newObjectError(r, k, errors.New("a ServiceCIDR cannot be deleted here"))
	default:
		s.deleteOne(r, o, now)
		s.announce(resources...)
		return nil
	}
	s.remove(r, k)
	s.announce(resources...)
	return nil
}

// deleteAllIn deletes what is in a namespace: Services first, with their slices.
func (s *store) deleteAllIn(namespace string, now time.Time) {
	for _, r := range []*resource{services, pods, endpointSlices} {
		for _, e := range s.listLocked(selectAll(r, namespace)) {
			s.deleteOne(r, e.object, now)
		}
	}
}

// deleteOne deletes an object and brings the EndpointSlices up to date. Like the controller, it makes a generated slice
// that was deleted anew.
func (s *store) deleteOne(r *resource, o object, now time.Time) {
	s.remove(r, keyOf(o))
	switch o := o.(type) {
	case *corev1.Service:
		s.release(o, nil)
		s.commit()
		s.syncEndpointSlices(keyOf(o), now)
	case *corev1.Pod:
		affected := s.servicesOf(o)
		slices.SortFunc(affected, compareKeys)
		for _, k := range affected {
			s.syncEndpointSlices(k, now)
		}
	case *discoveryv1.EndpointSlice:
		service := key{Namespace: o.Namespace, Name: o.Labels[discoveryv1.LabelServiceName]}
		if s.get(services, service) != nil {
			s.syncEndpointSlices(service, now)
		}
	}
}
