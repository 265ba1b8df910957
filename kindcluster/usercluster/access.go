package usercluster

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// right is something that a run does by the API.
type right struct {
	verb, group, resource, subresource string
	clusterWide                        bool
}

func (r right) String() string {
	s := r.verb + " " + r.resource
	if r.subresource != "" {
		s += "/" + r.subresource
	}
	if r.group != "" {
		s += "." + r.group
	}
	return s
}

// needed are the rights without which nothing runs.
var needed = []right{
	{verb: "list", resource: "nodes", clusterWide: true},
	{verb: "create", resource: "namespaces", clusterWide: true},
	{verb: "delete", resource: "namespaces", clusterWide: true},
	{verb: "create", resource: "pods"},
	{verb: "get", resource: "pods"},
	{verb: "create", resource: "pods", subresource: "exec"},
	{verb: "create", resource: "services"},
	{verb: "get", resource: "services"},
	{verb: "list", resource: "services"},
	{verb: "update", resource: "services"},
	{verb: "delete", resource: "services"},
	{verb: "list", group: "discovery.k8s.io", resource: "endpointslices"},
}

// CheckAccess asks the API server whether the user may do what a run does in a namespace. The error names every right that is missing.
func (c *Cluster) CheckAccess(ctx context.Context, namespace string) error {
	var missing []string
	for _, r := range needed {
		attributes := &authorizationv1.ResourceAttributes{Verb: r.verb, Group: r.group, Resource: r.resource, Subresource: r.subresource, Namespace: namespace}
		if r.clusterWide {
			attributes.Namespace = ""
		}
		review, err := c.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("context %s: ask whether its user may %s: %w", c.Context, r, err)
		}
		if !review.Status.Allowed {
			missing = append(missing, r.String())
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the user of context %s may not %s: a run needs that, in a namespace of its own; use a context whose user may", c.Context, strings.Join(missing, ", "))
	}
	return nil
}
