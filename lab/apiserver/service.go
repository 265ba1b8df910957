package apiserver

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// defaultService sets the defaults of pkg/apis/core/v1/defaults.go of Kubernetes.
func defaultService(svc *corev1.Service) {
	spec := &svc.Spec
	if spec.Type == "" {
		spec.Type = corev1.ServiceTypeClusterIP
	}
	switch spec.SessionAffinity {
	case "", corev1.ServiceAffinityNone:
		spec.SessionAffinity = corev1.ServiceAffinityNone
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		c := spec.SessionAffinityConfig
		if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(corev1.DefaultClientIPServiceAffinitySeconds)},
			}
		}
	}
	for i := range spec.Ports {
		p := &spec.Ports[i]
		if p.Protocol == "" {
			p.Protocol = corev1.ProtocolTCP
		}
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	if externallyAccessible(svc) && spec.ExternalTrafficPolicy == "" {
		spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	if spec.InternalTrafficPolicy == nil && needsClusterIP(svc) {
		spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		if spec.AllocateLoadBalancerNodePorts == nil {
			spec.AllocateLoadBalancerNodePorts = new(true)
		}
		for i := range svc.Status.LoadBalancer.Ingress {
			if in := &svc.Status.LoadBalancer.Ingress[i]; in.IP != "" && in.IPMode == nil {
				in.IPMode = new(corev1.LoadBalancerIPModeVIP)
			}
		}
	}
}

func needsClusterIP(svc *corev1.Service) bool {
	return svc.Spec.Type != corev1.ServiceTypeExternalName
}

func isHeadless(svc *corev1.Service) bool {
	return svc.Spec.ClusterIP == corev1.ClusterIPNone
}

// hasNodePorts reports whether the type has node ports, needsNodePorts whether they are to be allocated.
func hasNodePorts(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeNodePort || svc.Spec.Type == corev1.ServiceTypeLoadBalancer
}

func needsNodePorts(svc *corev1.Service) bool {
	allocate := svc.Spec.AllocateLoadBalancerNodePorts
	return svc.Spec.Type == corev1.ServiceTypeNodePort ||
		svc.Spec.Type == corev1.ServiceTypeLoadBalancer && (allocate == nil || *allocate)
}

func needsHealthCheck(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

func externallyAccessible(svc *corev1.Service) bool {
	return hasNodePorts(svc) || svc.Spec.Type == corev1.ServiceTypeClusterIP && len(svc.Spec.ExternalIPs) > 0
}

// keepAllocated fills in what the stored Service was allocated and the update does not name, and drops what the update's
// type has no use for, unless the update changes it (pkg/registry/core/service of Kubernetes: patchAllocatedValues,
// normalizeClusterIPs, dropTypeDependentFields).
func keepAllocated(svc, old *corev1.Service) {
	if needsClusterIP(old) && needsClusterIP(svc) {
		if svc.Spec.ClusterIP == "" {
			svc.Spec.ClusterIP = old.Spec.ClusterIP
		}
		// Who names only the first address as it is means all of them.
		if len(svc.Spec.ClusterIPs) == 0 && svc.Spec.ClusterIP == old.Spec.ClusterIP {
			svc.Spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
		}
	}
	if needsNodePorts(old) && needsNodePorts(svc) {
		keepNodePorts(svc, old)
	}
	if needsHealthCheck(old) && needsHealthCheck(svc) && svc.Spec.HealthCheckNodePort == 0 {
		svc.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
	}
	dropForType(svc, old)
}

// keepNodePorts finds the ports by name and keeps the node ports that no other port of the update names.
func keepNodePorts(svc, old *corev1.Service) {
	named := map[int32]bool{}
	for _, p := range svc.Spec.Ports {
		named[p.NodePort] = true
	}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if p.NodePort != 0 {
			continue
		}
		for _, before := range old.Spec.Ports {
			if before.Name == p.Name && !named[before.NodePort] {
				p.NodePort = before.NodePort
			}
		}
	}
}

func dropForType(svc, old *corev1.Service) {
	if needsClusterIP(old) && !needsClusterIP(svc) {
		if svc.Spec.ClusterIP == old.Spec.ClusterIP && slices.Equal(svc.Spec.ClusterIPs, old.Spec.ClusterIPs) {
			svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "", nil
		}
		if slices.Equal(svc.Spec.IPFamilies, old.Spec.IPFamilies) {
			svc.Spec.IPFamilies = nil
		}
		if samePointee(svc.Spec.IPFamilyPolicy, old.Spec.IPFamilyPolicy) {
			svc.Spec.IPFamilyPolicy = nil
		}
	}
	if hasNodePorts(old) && !hasNodePorts(svc) {
		before := nodePorts(old)
		for i := range svc.Spec.Ports {
			if p := &svc.Spec.Ports[i]; slices.Contains(before, p.NodePort) {
				p.NodePort = 0
			}
		}
	}
	if needsHealthCheck(old) && !needsHealthCheck(svc) && svc.Spec.HealthCheckNodePort == old.Spec.HealthCheckNodePort {
		svc.Spec.HealthCheckNodePort = 0
	}
	if old.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		if samePointee(svc.Spec.AllocateLoadBalancerNodePorts, old.Spec.AllocateLoadBalancerNodePorts) {
			svc.Spec.AllocateLoadBalancerNodePorts = nil
		}
		if samePointee(svc.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
			svc.Spec.LoadBalancerClass = nil
		}
	}
	if externallyAccessible(old) && !externallyAccessible(svc) && svc.Spec.ExternalTrafficPolicy == old.Spec.ExternalTrafficPolicy {
		svc.Spec.ExternalTrafficPolicy = ""
	}
}

func samePointee[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// keepStatus keeps the stored status under a manifest that has none, as an update of the main resource does in Kubernetes,
// unless the Service is no longer of type LoadBalancer.
func keepStatus(svc, old *corev1.Service) {
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer && len(svc.Status.LoadBalancer.Ingress) == 0 {
		old.Status.LoadBalancer.DeepCopyInto(&svc.Status.LoadBalancer)
	}
	if len(svc.Status.Conditions) == 0 {
		svc.Status.Conditions = old.DeepCopy().Status.Conditions
	}
}

// setFamilies completes ipFamilyPolicy, ipFamilies and clusterIPs from each other and from the families of the cluster
// (initIPFamilyFields in pkg/registry/core/service/storage/alloc.go of Kubernetes). svc is valid by validateFamilies.
func (a *allocators) setFamilies(svc, old *corev1.Service) field.ErrorList {
	if !needsClusterIP(svc) {
		return nil
	}
	spec := &svc.Spec
	anyFamily := isHeadless(svc) && len(spec.Selector) == 0
	if spec.IPFamilyPolicy == nil {
		switch {
		case old != nil && old.Spec.IPFamilyPolicy != nil:
			spec.IPFamilyPolicy = new(*old.Spec.IPFamilyPolicy)
		case anyFamily:
			spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
		default:
			spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
		}
	}
	var errs field.ErrorList
	policy, policyPath := *spec.IPFamilyPolicy, field.NewPath("spec", "ipFamilyPolicy")
	single := policy == corev1.IPFamilyPolicySingleStack
	if old != nil && single {
		// To turn to SingleStack is to give up the second address.
		if len(spec.ClusterIPs) > 1 && slices.Equal(spec.ClusterIPs, old.Spec.ClusterIPs) {
			spec.ClusterIPs = spec.ClusterIPs[:1]
		}
		if len(spec.IPFamilies) > 1 && slices.Equal(spec.IPFamilies, old.Spec.IPFamilies) {
			spec.IPFamilies = spec.IPFamilies[:1]
		}
	}
	if old != nil && !single {
		if n := len(spec.ClusterIPs); n > 0 && n < len(old.Spec.ClusterIPs) {
			errs = append(errs, field.Invalid(policyPath, policy, "must be 'SingleStack' to release the secondary cluster IP"))
		}
		if n := len(spec.IPFamilies); n > 0 && n < len(old.Spec.IPFamilies) {
			errs = append(errs, field.Invalid(policyPath, policy, "must be 'SingleStack' to release the secondary IP family"))
		}
	}
	if single && len(spec.ClusterIPs) == 2 {
		errs = append(errs, field.Invalid(policyPath, policy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified"))
	}
	if single && len(spec.IPFamilies) == 2 {
		errs = append(errs, field.Invalid(policyPath, policy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"))
	}
	for i := len(spec.IPFamilies); i < len(spec.ClusterIPs); i++ {
		ip, err := netip.ParseAddr(spec.ClusterIPs[i])
		if err != nil {
			break // "None"
		}
		if a.ips[familyOf(ip)] == nil {
			errs = append(errs, field.Invalid(field.NewPath("spec", "clusterIPs").Index(i), spec.ClusterIPs[i],
				string(familyOf(ip))+" is not configured on this cluster"))
			continue
		}
		spec.IPFamilies = append(spec.IPFamilies, familyOf(ip))
	}
	if !anyFamily {
		if policy == corev1.IPFamilyPolicyRequireDualStack && len(a.ips) < 2 {
			errs = append(errs, field.Invalid(policyPath, policy, "this cluster is not configured for dual-stack services"))
		}
		for i, family := range spec.IPFamilies {
			if a.ips[family] == nil {
				errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilies").Index(i), family, "not configured on this cluster"))
			}
		}
	}
	if len(errs) > 0 {
		return errs
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{a.primary}
	}
	if !single && len(spec.IPFamilies) == 1 && (anyFamily || len(a.ips) == 2) {
		second := corev1.IPv4Protocol
		if spec.IPFamilies[0] == corev1.IPv4Protocol {
			second = corev1.IPv6Protocol
		}
		spec.IPFamilies = append(spec.IPFamilies, second)
	}
	return nil
}
