package apiserver

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// defaultPod sets what the EndpointSlice generator and clients look at: phase, podIP and podIPs from each other, and the
// protocol of ports.
func defaultPod(pod *corev1.Pod) {
	for i := range pod.Spec.Containers {
		for j := range pod.Spec.Containers[i].Ports {
			if p := &pod.Spec.Containers[i].Ports[j]; p.Protocol == "" {
				p.Protocol = corev1.ProtocolTCP
			}
		}
	}
	status := &pod.Status
	if status.Phase == "" {
		status.Phase = corev1.PodPending
	}
	if status.PodIP == "" && len(status.PodIPs) > 0 {
		status.PodIP = status.PodIPs[0].IP
	}
	if status.PodIP != "" && len(status.PodIPs) == 0 {
		status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	}
}

// validatePod checks names, labels, ports and addresses. Unlike an API server it does not ask for containers and images,
// since the lab's pods have none.
func validatePod(pod *corev1.Pod) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&pod.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	for i := range pod.Spec.Containers {
		names := map[string]bool{}
		for j, p := range pod.Spec.Containers[i].Ports {
			path := field.NewPath("spec", "containers").Index(i).Child("ports").Index(j)
			if p.Name != "" {
				for _, why := range validation.IsValidPortName(p.Name) {
					errs = append(errs, field.Invalid(path.Child("name"), p.Name, why))
				}
				if names[p.Name] {
					errs = append(errs, field.Duplicate(path.Child("name"), p.Name))
				}
				names[p.Name] = true
			}
			for _, why := range validation.IsValidPortNum(int(p.ContainerPort)) {
				errs = append(errs, field.Invalid(path.Child("containerPort"), p.ContainerPort, why))
			}
			if !slices.Contains(protocols, p.Protocol) {
				errs = append(errs, field.NotSupported(path.Child("protocol"), p.Protocol, protocols))
			}
		}
	}
	return append(errs, validatePodIPs(&pod.Status)...)
}

func validatePodIPs(status *corev1.PodStatus) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status", "podIPs")
	var families []corev1.IPFamily
	for i, ip := range status.PodIPs {
		if bad := validation.IsValidIP(path.Index(i).Child("ip"), ip.IP); len(bad) > 0 {
			errs = append(errs, bad...)
			continue
		}
		family := familyOf(netip.MustParseAddr(ip.IP))
		if slices.Contains(families, family) {
			errs = append(errs, field.Invalid(path, ip.IP, "may specify no more than one IP for each IP family"))
		}
		families = append(families, family)
	}
	if len(status.PodIPs) > 0 && status.PodIPs[0].IP != status.PodIP {
		errs = append(errs, field.Invalid(path.Index(0).Child("ip"), status.PodIPs[0].IP, "must be equal to `podIP`"))
	}
	return errs
}

// keepPodStatus keeps the stored status under a manifest that has none.
func keepPodStatus(pod, old *corev1.Pod) {
	if s := pod.Status; s.Phase == "" && s.PodIP == "" && len(s.PodIPs) == 0 && len(s.Conditions) == 0 {
		pod.Status = old.DeepCopy().Status
	}
}

func validateNode(node *corev1.Node) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&node.ObjectMeta, false, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	for i, cidr := range node.Spec.PodCIDRs {
		errs = append(errs, validation.IsValidCIDR(field.NewPath("spec", "podCIDRs").Index(i), cidr)...)
	}
	for i, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			errs = append(errs, validation.IsValidIP(field.NewPath("status", "addresses").Index(i).Child("address"), a.Address)...)
		}
	}
	return errs
}

func defaultNamespace(ns *corev1.Namespace) {
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
	if ns.Status.Phase == "" {
		ns.Status.Phase = corev1.NamespaceActive
	}
}

func validateNamespace(ns *corev1.Namespace) field.ErrorList {
	return apivalidation.ValidateObjectMeta(&ns.ObjectMeta, false, apivalidation.ValidateNamespaceName, field.NewPath("metadata"))
}

func validateServiceCIDR(c, old *networkingv1.ServiceCIDR) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&c.ObjectMeta, false, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	path := field.NewPath("spec", "cidrs")
	if len(c.Spec.CIDRs) == 0 {
		errs = append(errs, field.Required(path, "at least one CIDR required"))
	}
	if len(c.Spec.CIDRs) > 2 {
		errs = append(errs, field.TooMany(path, len(c.Spec.CIDRs), 2))
	}
	for i, cidr := range c.Spec.CIDRs {
		errs = append(errs, validation.IsValidCIDR(path.Index(i), cidr)...)
	}
	if old != nil && !slices.Equal(c.Spec.CIDRs, old.Spec.CIDRs) {
		errs = append(errs, field.Invalid(path, c.Spec.CIDRs, "field is immutable"))
	}
	return errs
}

// rangesOf returns a valid ServiceCIDR's ranges.
func rangesOf(c *networkingv1.ServiceCIDR) []netip.Prefix {
	prefixes := make([]netip.Prefix, len(c.Spec.CIDRs))
	for i, text := range c.Spec.CIDRs {
		prefixes[i] = netip.MustParsePrefix(text)
	}
	return prefixes
}
