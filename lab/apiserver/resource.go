package apiserver

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"kplab/lab"
)

// object is any object that the server stores.
type object interface {
	metav1.Object
	runtime.Object
}

// resource says what the server must know of a kind. Resources are values that never change.
type resource struct {
	schema.GroupVersion
	name, singular, kind, short string
	namespaced                  bool
	// fields maps the names that a field selector may use, besides metadata.name and metadata.namespace, to their values.
	fields map[string]func(object) string
	// spec returns what makes a new generation when it changes.
	spec func(object) any
}

func (r *resource) gvk() schema.GroupVersionKind { return r.WithKind(r.kind) }

func (r *resource) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.name}
}

// newList returns a typed list of objects at a resourceVersion.
func (r *resource) newList(objects []runtime.Object, resourceVersion string) (runtime.Object, error) {
	list, err := scheme.Scheme.New(r.WithKind(r.kind + "List"))
	if err != nil {
		return nil, err
	}
	list.GetObjectKind().SetGroupVersionKind(r.WithKind(r.kind + "List"))
	if err := meta.SetList(list, objects); err != nil {
		return nil, err
	}
	l, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	l.SetResourceVersion(resourceVersion)
	return list, nil
}

var (
	namespaces = &resource{
		GroupVersion: corev1.SchemeGroupVersion, name: "namespaces", singular: "namespace", kind: "Namespace", short: "ns",
		fields: map[string]func(object) string{
			"status.phase": func(o object) string { return string(o.(*corev1.Namespace).Status.Phase) },
		},
		spec: func(o object) any { return o.(*corev1.Namespace).Spec },
	}
	serviceCIDRs = &resource{
		GroupVersion: networkingv1.SchemeGroupVersion, name: "servicecidrs", singular: "servicecidr", kind: "ServiceCIDR",
		spec: func(o object) any { return o.(*networkingv1.ServiceCIDR).Spec },
	}
	nodes = &resource{
		GroupVersion: corev1.SchemeGroupVersion, name: "nodes", singular: "node", kind: "Node", short: "no",
		fields: map[string]func(object) string{
			"spec.unschedulable": func(o object) string { return fmt.Sprint(o.(*corev1.Node).Spec.Unschedulable) },
		},
		spec: func(o object) any { return o.(*corev1.Node).Spec },
	}
	pods = &resource{
		GroupVersion: corev1.SchemeGroupVersion, name: "pods", singular: "pod", kind: "Pod", short: "po", namespaced: true,
		fields: map[string]func(object) string{
			"spec.nodeName": func(o object) string { return o.(*corev1.Pod).Spec.NodeName },
			"status.phase":  func(o object) string { return string(o.(*corev1.Pod).Status.Phase) },
			"status.podIP":  func(o object) string { return o.(*corev1.Pod).Status.PodIP },
		},
		spec: func(o object) any { return o.(*corev1.Pod).Spec },
	}
	services = &resource{
		GroupVersion: corev1.SchemeGroupVersion, name: "services", singular: "service", kind: "Service", short: "svc", namespaced: true,
		fields: map[string]func(object) string{
			"spec.clusterIP": func(o object) string { return o.(*corev1.Service).Spec.ClusterIP },
			"spec.type":      func(o object) string { return string(o.(*corev1.Service).Spec.Type) },
		},
		spec: func(o object) any { return o.(*corev1.Service).Spec },
	}
	endpointSlices = &resource{
		GroupVersion: discoveryv1.SchemeGroupVersion, name: "endpointslices", singular: "endpointslice", kind: "EndpointSlice", namespaced: true,
		spec: func(o object) any {
			e := o.(*discoveryv1.EndpointSlice)
			return []any{e.AddressType, e.Endpoints, e.Ports}
		},
	}

	// resources are in the order in which objects are stored and shown.
	resources = []*resource{namespaces, serviceCIDRs, nodes, pods, services, endpointSlices}
)

// resourceNamed finds a resource by its place in the API, or returns nil.
func resourceNamed(gv schema.GroupVersion, name string) *resource {
	i := slices.IndexFunc(resources, func(r *resource) bool { return r.GroupVersion == gv && r.name == name })
	if i < 0 {
		return nil
	}
	return resources[i]
}

// resourceOf finds the resource of an object by its Go type.
func resourceOf(o runtime.Object) (*resource, object, error) {
	known, ok := o.(object)
	if ok {
		switch o.(type) {
		case *corev1.Namespace:
			return namespaces, known, nil
		case *networkingv1.ServiceCIDR:
			return serviceCIDRs, known, nil
		case *corev1.Node:
			return nodes, known, nil
		case *corev1.Pod:
			return pods, known, nil
		case *corev1.Service:
			return services, known, nil
		case *discoveryv1.EndpointSlice:
			return endpointSlices, known, nil
		}
	}
	return nil, nil, fmt.Errorf("object of type %T cannot be stored: known kinds are %v", o, kindNames())
}

// resourceOfKind finds a resource by its kind; the error names the nearest.
func resourceOfKind(kind string) (*resource, error) {
	i := slices.IndexFunc(resources, func(r *resource) bool { return r.kind == kind })
	if i < 0 {
		return nil, fmt.Errorf("unknown kind %q%s", kind, lab.Suggest(kind, kindNames()))
	}
	return resources[i], nil
}

func kindNames() []string {
	names := make([]string, len(resources))
	for i, r := range resources {
		names[i] = r.kind
	}
	return names
}
