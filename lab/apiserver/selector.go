package apiserver

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// selector picks objects of a resource by namespace, labels and fields.
type selector struct {
	resource  *resource
	namespace string // "" for all
	labels    labels.Selector
	fields    fields.Selector
}

// newSelector reads the selectors of a request. The error says what is wrong with them.
func newSelector(r *resource, namespace string, o *metav1.ListOptions) (selector, error) {
	s := selector{resource: r, namespace: namespace}
	var err error
	if s.labels, err = labels.Parse(o.LabelSelector); err != nil {
		return s, fmt.Errorf("label selector %q: %w", o.LabelSelector, err)
	}
	if s.fields, err = fields.ParseSelector(o.FieldSelector); err != nil {
		return s, fmt.Errorf("field selector %q: %w", o.FieldSelector, err)
	}
	for _, requirement := range s.fields.Requirements() {
		if !r.hasField(requirement.Field) {
			return s, fmt.Errorf("field label not supported: %s", requirement.Field)
		}
	}
	return s, nil
}

func (r *resource) hasField(name string) bool {
	_, ok := r.fields[name]
	return ok || name == "metadata.name" || name == "metadata.namespace" && r.namespaced
}

// matches reports whether the selector picks e, which may be nil.
func (s *selector) matches(e *entry) bool {
	return e != nil &&
		(s.namespace == "" || s.namespace == e.object.GetNamespace()) &&
		(s.labels.Empty() || s.labels.Matches(labels.Set(e.object.GetLabels()))) &&
		(s.fields.Empty() || s.fields.Matches(objectFields{s.resource, e.object}))
}

// objectFields shows an object's fields to a field selector.
type objectFields struct {
	resource *resource
	object   object
}

func (f objectFields) Has(name string) bool { return f.resource.hasField(name) }

func (f objectFields) Get(name string) string {
	switch name {
	case "metadata.name":
		return f.object.GetName()
	case "metadata.namespace":
		return f.object.GetNamespace()
	}
	if get, ok := f.resource.fields[name]; ok {
		return get(f.object)
	}
	return ""
}
