package apiserver

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateService checks what does not depend on what is allocated: ValidateServiceCreate and ValidateServiceUpdate in
// pkg/apis/core/validation of Kubernetes, in their words. old is nil for a new Service.
func validateService(svc, old *corev1.Service) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&svc.ObjectMeta, true, apivalidation.NameIsDNSLabel, field.NewPath("metadata"))
	path := field.NewPath("spec")
	spec := &svc.Spec

	if len(spec.Ports) == 0 && !isHeadless(svc) && needsClusterIP(svc) {
		errs = append(errs, field.Required(path.Child("ports"), ""))
	}
	types := []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort}
	if !slices.Contains(types, spec.Type) {
		errs = append(errs, field.NotSupported(path.Child("type"), spec.Type, types))
	}
	if hasNodePorts(svc) && isHeadless(svc) {
		errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(0), corev1.ClusterIPNone,
			fmt.Sprintf("may not be set to 'None' for %s services", spec.Type)))
	}
	errs = append(errs, validateExternalName(svc)...)
	errs = append(errs, validateServicePorts(svc)...)
	errs = append(errs, metavalidation.ValidateLabels(spec.Selector, path.Child("selector"))...)
	errs = append(errs, validateSessionAffinity(spec)...)
	errs = append(errs, validateFamilies(svc)...)
	for i, ip := range spec.ExternalIPs {
		errs = append(errs, validateEndpointIP(path.Child("externalIPs").Index(i), ip)...)
	}
	errs = append(errs, validateTraffic(svc)...)
	errs = append(errs, validateLoadBalancer(svc)...)
	if old != nil {
		errs = append(errs, validateServiceUpdate(svc, old)...)
	}
	return errs
}

func validateExternalName(svc *corev1.Service) field.ErrorList {
	if needsClusterIP(svc) {
		return nil
	}
	var errs field.ErrorList
	path := field.NewPath("spec")
	const why = "may not be set for ExternalName services"
	if svc.Spec.ClusterIP != "" || len(svc.Spec.ClusterIPs) > 0 {
		errs = append(errs, field.Forbidden(path.Child("clusterIPs"), why))
	}
	if len(svc.Spec.IPFamilies) > 0 {
		errs = append(errs, field.Forbidden(path.Child("ipFamilies"), why))
	}
	if svc.Spec.IPFamilyPolicy != nil {
		errs = append(errs, field.Forbidden(path.Child("ipFamilyPolicy"), why))
	}
	name := strings.TrimSuffix(svc.Spec.ExternalName, ".")
	if name == "" {
		return append(errs, field.Required(path.Child("externalName"), ""))
	}
	for _, why := range validation.IsDNS1123Subdomain(name) {
		errs = append(errs, field.Invalid(path.Child("externalName"), name, why))
	}
	return errs
}

var protocols = []corev1.Protocol{corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP}

func validateServicePorts(svc *corev1.Service) field.ErrorList {
	type protocolPort struct {
		protocol corev1.Protocol
		port     int32
	}
	var errs field.ErrorList
	names, ports, nodePorts := map[string]bool{}, map[protocolPort]bool{}, map[protocolPort]bool{}
	for i := range svc.Spec.Ports {
		p, path := &svc.Spec.Ports[i], field.NewPath("spec", "ports").Index(i)
		switch {
		case p.Name == "" && len(svc.Spec.Ports) > 1:
			errs = append(errs, field.Required(path.Child("name"), ""))
		case p.Name != "":
			for _, why := range validation.IsDNS1123Label(p.Name) {
				errs = append(errs, field.Invalid(path.Child("name"), p.Name, why))
			}
			if names[p.Name] {
				errs = append(errs, field.Duplicate(path.Child("name"), p.Name))
			}
			names[p.Name] = true
		}
		for _, why := range validation.IsValidPortNum(int(p.Port)) {
			errs = append(errs, field.Invalid(path.Child("port"), p.Port, why))
		}
		if !slices.Contains(protocols, p.Protocol) {
			errs = append(errs, field.NotSupported(path.Child("protocol"), p.Protocol, protocols))
		}
		errs = append(errs, validateTargetPort(path.Child("targetPort"), p.TargetPort)...)
		if p.AppProtocol != nil {
			for _, why := range validation.IsQualifiedName(*p.AppProtocol) {
				errs = append(errs, field.Invalid(path.Child("appProtocol"), *p.AppProtocol, why))
			}
		}
		if own := (protocolPort{p.Protocol, p.Port}); ports[own] {
			errs = append(errs, field.Duplicate(path, fmt.Sprintf("%s %d", p.Protocol, p.Port)))
		} else {
			ports[own] = true
		}
		if p.NodePort == 0 {
			continue
		}
		if svc.Spec.Type == corev1.ServiceTypeClusterIP {
			errs = append(errs, field.Forbidden(path.Child("nodePort"), "may not be used when `type` is 'ClusterIP'"))
		}
		if own := (protocolPort{p.Protocol, p.NodePort}); nodePorts[own] {
			errs = append(errs, field.Duplicate(path.Child("nodePort"), p.NodePort))
		} else {
			nodePorts[own] = true
		}
	}
	return errs
}

func validateTargetPort(path *field.Path, port intstr.IntOrString) field.ErrorList {
	reasons := validation.IsValidPortNum(port.IntValue())
	if port.Type == intstr.String {
		reasons = validation.IsValidPortName(port.StrVal)
	}
	var errs field.ErrorList
	for _, why := range reasons {
		errs = append(errs, field.Invalid(path, port.String(), why))
	}
	return errs
}

func validateSessionAffinity(spec *corev1.ServiceSpec) field.ErrorList {
	affinities := []corev1.ServiceAffinity{corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone}
	if !slices.Contains(affinities, spec.SessionAffinity) {
		return field.ErrorList{field.NotSupported(field.NewPath("spec", "sessionAffinity"), spec.SessionAffinity, affinities)}
	}
	if spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return nil
	}
	const mostSeconds = 86400
	if t := *spec.SessionAffinityConfig.ClientIP.TimeoutSeconds; t <= 0 || t > mostSeconds {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "sessionAffinityConfig", "clientIP", "timeoutSeconds"), t,
			fmt.Sprintf("must be greater than 0 and less than %d", mostSeconds))}
	}
	return nil
}

// validateFamilies is ValidateServiceClusterIPsRelatedFields.
func validateFamilies(svc *corev1.Service) field.ErrorList {
	if !needsClusterIP(svc) {
		return nil
	}
	var errs field.ErrorList
	spec, path := &svc.Spec, field.NewPath("spec")
	switch {
	case spec.ClusterIP != "" && len(spec.ClusterIPs) == 0:
		errs = append(errs, field.Required(path.Child("clusterIPs"), ""))
	case spec.ClusterIP == "" && len(spec.ClusterIPs) > 0:
		errs = append(errs, field.Invalid(path.Child("clusterIPs"), spec.ClusterIPs, "must be empty when `clusterIP` is not specified"))
	case spec.ClusterIP != "" && spec.ClusterIPs[0] != spec.ClusterIP:
		errs = append(errs, field.Invalid(path.Child("clusterIPs"), spec.ClusterIPs, "first value must match `clusterIP`"))
	}
	known := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	for i, family := range spec.IPFamilies {
		if !slices.Contains(known, family) {
			errs = append(errs, field.NotSupported(path.Child("ipFamilies").Index(i), family, known))
		}
		if slices.Contains(spec.IPFamilies[:i], family) {
			errs = append(errs, field.Duplicate(path.Child("ipFamilies").Index(i), family))
		}
	}
	policies := []corev1.IPFamilyPolicy{corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack}
	if spec.IPFamilyPolicy != nil && !slices.Contains(policies, *spec.IPFamilyPolicy) {
		errs = append(errs, field.NotSupported(path.Child("ipFamilyPolicy"), *spec.IPFamilyPolicy, policies))
	}
	if len(spec.ClusterIPs) > 2 {
		errs = append(errs, field.Invalid(path.Child("clusterIPs"), spec.ClusterIPs, "may only hold up to 2 values"))
	}
	var families []corev1.IPFamily
	for i, text := range spec.ClusterIPs {
		at := path.Child("clusterIPs").Index(i)
		if text == corev1.ClusterIPNone {
			if len(spec.ClusterIPs) > 1 {
				errs = append(errs, field.Invalid(path.Child("clusterIPs"), spec.ClusterIPs, "'None' must be the first and only value"))
			}
			continue
		}
		if bad := validation.IsValidIP(at, text); len(bad) > 0 {
			errs = append(errs, bad...)
			continue
		}
		family := familyOf(netip.MustParseAddr(text))
		if slices.Contains(families, family) {
			errs = append(errs, field.Invalid(path.Child("clusterIPs"), spec.ClusterIPs, "may specify no more than one IP for each IP family"))
		}
		families = append(families, family)
		if i < len(spec.IPFamilies) && spec.IPFamilies[i] != family {
			errs = append(errs, field.Invalid(at, text, fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%d]`", spec.IPFamilies[i], i)))
		}
	}
	return errs
}

func validateTraffic(svc *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	spec, path := &svc.Spec, field.NewPath("spec")
	external := []corev1.ServiceExternalTrafficPolicy{corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal}
	switch {
	case !externallyAccessible(svc) && spec.ExternalTrafficPolicy != "":
		errs = append(errs, field.Invalid(path.Child("externalTrafficPolicy"), spec.ExternalTrafficPolicy,
			"may only be set for externally-accessible services"))
	case externallyAccessible(svc) && !slices.Contains(external, spec.ExternalTrafficPolicy):
		errs = append(errs, field.NotSupported(path.Child("externalTrafficPolicy"), spec.ExternalTrafficPolicy, external))
	}
	internal := []corev1.ServiceInternalTrafficPolicy{corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal}
	if p := spec.InternalTrafficPolicy; p != nil && !slices.Contains(internal, *p) {
		errs = append(errs, field.NotSupported(path.Child("internalTrafficPolicy"), *p, internal))
	}
	distributions := []string{corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameNode, corev1.ServiceTrafficDistributionPreferSameZone}
	if d := spec.TrafficDistribution; d != nil && !slices.Contains(distributions, *d) {
		errs = append(errs, field.NotSupported(path.Child("trafficDistribution"), *d, distributions))
	}
	if !needsHealthCheck(svc) && spec.HealthCheckNodePort != 0 {
		errs = append(errs, field.Invalid(path.Child("healthCheckNodePort"), spec.HealthCheckNodePort,
			"may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	}
	return errs
}

func validateLoadBalancer(svc *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	spec, path := &svc.Spec, field.NewPath("spec")
	ingress := field.NewPath("status", "loadBalancer", "ingress")
	if spec.Type != corev1.ServiceTypeLoadBalancer {
		const why = "may only be used when `type` is 'LoadBalancer'"
		if len(spec.LoadBalancerSourceRanges) > 0 {
			errs = append(errs, field.Forbidden(path.Child("loadBalancerSourceRanges"), why))
		}
		if spec.AllocateLoadBalancerNodePorts != nil {
			errs = append(errs, field.Forbidden(path.Child("allocateLoadBalancerNodePorts"), why))
		}
		if spec.LoadBalancerClass != nil {
			errs = append(errs, field.Forbidden(path.Child("loadBalancerClass"), why))
		}
		if len(svc.Status.LoadBalancer.Ingress) > 0 {
			errs = append(errs, field.Forbidden(ingress, "may only be used when `spec.type` is 'LoadBalancer'"))
		}
		return errs
	}
	for i, cidr := range spec.LoadBalancerSourceRanges {
		errs = append(errs, validation.IsValidCIDR(path.Child("loadBalancerSourceRanges").Index(i), strings.TrimSpace(cidr))...)
	}
	if spec.LoadBalancerClass != nil {
		for _, why := range validation.IsQualifiedName(*spec.LoadBalancerClass) {
			errs = append(errs, field.Invalid(path.Child("loadBalancerClass"), *spec.LoadBalancerClass, why))
		}
	}
	modes := []corev1.LoadBalancerIPMode{corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP}
	for i, in := range svc.Status.LoadBalancer.Ingress {
		at := ingress.Index(i)
		if in.IP != "" {
			errs = append(errs, validation.IsValidIP(at.Child("ip"), in.IP)...)
		}
		switch {
		case in.IPMode != nil && in.IP == "":
			errs = append(errs, field.Forbidden(at.Child("ipMode"), "may not be specified when `ip` is not set"))
		case in.IPMode != nil && !slices.Contains(modes, *in.IPMode):
			errs = append(errs, field.NotSupported(at.Child("ipMode"), *in.IPMode, modes))
		}
		if in.Hostname != "" {
			for _, why := range validation.IsDNS1123Subdomain(in.Hostname) {
				errs = append(errs, field.Invalid(at.Child("hostname"), in.Hostname, why))
			}
		}
	}
	return errs
}

// validateServiceUpdate checks that nothing immutable changes: the first cluster IP and its family, the second unless it
// comes or goes as a whole, the class, and the health check node port.
func validateServiceUpdate(svc, old *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec")
	if needsClusterIP(svc) && needsClusterIP(old) {
		if !isHeadless(svc) || !isHeadless(old) {
			for i := range min(len(svc.Spec.ClusterIPs), len(old.Spec.ClusterIPs)) {
				if svc.Spec.ClusterIPs[i] != old.Spec.ClusterIPs[i] {
					errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(i), svc.Spec.ClusterIPs, "may not change once set"))
				}
			}
		}
		if !isHeadless(svc) && !isHeadless(old) {
			for i := range min(len(svc.Spec.IPFamilies), len(old.Spec.IPFamilies)) {
				if svc.Spec.IPFamilies[i] != old.Spec.IPFamilies[i] {
					errs = append(errs, field.Invalid(path.Child("ipFamilies").Index(i), svc.Spec.IPFamilies, "may not change once set"))
				}
			}
		}
	}
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer && old.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		!samePointee(svc.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
		errs = append(errs, field.Invalid(path.Child("loadBalancerClass"), svc.Spec.LoadBalancerClass, "may not change once set"))
	}
	if needsHealthCheck(svc) && needsHealthCheck(old) && svc.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
		errs = append(errs, field.Forbidden(path.Child("healthCheckNodePort"), "field is immutable"))
	}
	return errs
}

// validateEndpointIP is ValidateEndpointIP: an address that traffic may be sent to.
func validateEndpointIP(path *field.Path, text string) field.ErrorList {
	if errs := validation.IsValidIP(path, text); len(errs) > 0 {
		return errs
	}
	ip := netip.MustParseAddr(text)
	why := ""
	switch {
	case ip.IsUnspecified():
		why = fmt.Sprintf("may not be unspecified (%s)", text)
	case ip.IsLoopback():
		why = "may not be in the loopback range (127.0.0.0/8, ::1/128)"
	case ip.IsLinkLocalUnicast():
		why = "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
	case ip.IsLinkLocalMulticast():
		why = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
	default:
		return nil
	}
	return field.ErrorList{field.Invalid(path, text, why)}
}
