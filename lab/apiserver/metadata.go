package apiserver

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// ObjectError says what is wrong with one object. Its text is one line: kind, namespace and name, then Err.
type ObjectError struct {
	Kind, Namespace, Name string
	Err                   error
}

func (e *ObjectError) Error() string {
	if e.Namespace == "" {
		return fmt.Sprintf("%s %s: %v", e.Kind, e.Name, e.Err)
	}
	return fmt.Sprintf("%s %s/%s: %v", e.Kind, e.Namespace, e.Name, e.Err)
}

func (e *ObjectError) Unwrap() error { return e.Err }

func newObjectError(r *resource, k key, err error) error {
	return &ObjectError{Kind: r.kind, Namespace: k.Namespace, Name: k.Name, Err: err}
}

// setCreated gives a new object what the API server gives it.
func setCreated(o object) {
	o.SetUID(uuid.NewUUID())
	o.SetCreationTimestamp(metav1.Now().Rfc3339Copy())
	o.SetGeneration(1)
}

// carryOver gives an updated object what it keeps from the stored one. It reports whether anything else changed.
func carryOver(r *resource, o, old object) (changed bool) {
	o.GetObjectKind().SetGroupVersionKind(r.gvk())
	o.SetUID(old.GetUID())
	o.SetCreationTimestamp(old.GetCreationTimestamp())
	o.SetGeneration(old.GetGeneration())
	o.SetResourceVersion(old.GetResourceVersion())
	if apiequality.Semantic.DeepEqual(o, old) {
		return false
	}
	if !apiequality.Semantic.DeepEqual(r.spec(o), r.spec(old)) {
		o.SetGeneration(old.GetGeneration() + 1)
	}
	return true
}

type initialObject struct {
	resource *resource
	object   object
}

// initialObjects are what every cluster has.
func initialObjects(c Config) []initialObject {
	return []initialObject{
		{namespaces, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceDefault, Labels: map[string]string{corev1.LabelMetadataName: metav1.NamespaceDefault}},
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		}},
		{serviceCIDRs, &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
			Spec:       networkingv1.ServiceCIDRSpec{CIDRs: prefixStrings(c.ServiceCIDRs)},
			Status:     readyCIDR(),
		}},
	}
}

func prefixStrings(prefixes []netip.Prefix) []string {
	texts := make([]string, len(prefixes))
	for i, p := range prefixes {
		texts[i] = p.Masked().String()
	}
	return texts
}

func readyCIDR() networkingv1.ServiceCIDRStatus {
	return networkingv1.ServiceCIDRStatus{Conditions: []metav1.Condition{{
		Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue,
		LastTransitionTime: metav1.Now().Rfc3339Copy(), Message: "Kubernetes Service CIDR is ready",
	}}}
}
