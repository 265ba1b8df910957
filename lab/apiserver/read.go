package apiserver

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// Service returns a Service as stored, with what was defaulted and allocated. namespace "" is "default". The error is an
// *ObjectError for which apierrors.IsNotFound holds.
func (s *Server) Service(namespace, name string) (*corev1.Service, error) {
	k := key{Namespace: cmp.Or(namespace, metav1.NamespaceDefault), Name: name}
	s.store.mutex.RLock()
	e := s.store.get(services, k)
	s.store.mutex.RUnlock()
	if e == nil {
		return nil, newObjectError(services, k, apierrors.NewNotFound(services.groupResource(), name))
	}
	return e.object.(*corev1.Service).DeepCopy(), nil
}

// EndpointSlices returns the EndpointSlices of a Service, generated and given, by name. namespace "" is "default".
func (s *Server) EndpointSlices(namespace, service string) []*discoveryv1.EndpointSlice {
	s.store.mutex.RLock()
	defer s.store.mutex.RUnlock()
	found := s.store.slicesOf(key{Namespace: cmp.Or(namespace, metav1.NamespaceDefault), Name: service})
	for i, slice := range found {
		found[i] = slice.DeepCopy()
	}
	return found
}

// Pods returns all Pods by namespace and name.
func (s *Server) Pods() []*corev1.Pod {
	entries, _ := s.store.list(selectAll(pods, ""))
	found := make([]*corev1.Pod, len(entries))
	for i, e := range entries {
		found[i] = e.object.(*corev1.Pod).DeepCopy()
	}
	return found
}

// Objects returns all that is stored, except Events: by kind, namespace and name.
func (s *Server) Objects() []runtime.Object {
	s.store.mutex.RLock()
	defer s.store.mutex.RUnlock()
	var objects []runtime.Object
	for _, r := range resources {
		for _, e := range s.store.listLocked(selectAll(r, "")) {
			objects = append(objects, e.object.DeepCopyObject())
		}
	}
	return objects
}

func selectAll(r *resource, namespace string) selector {
	return selector{resource: r, namespace: namespace, labels: labels.Everything(), fields: fields.Everything()}
}
