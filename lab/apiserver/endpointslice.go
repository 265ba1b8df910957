package apiserver

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// defaultEndpointSlice sets the defaults of pkg/apis/discovery/v1/defaults.go of Kubernetes.
func defaultEndpointSlice(slice *discoveryv1.EndpointSlice) {
	for i := range slice.Ports {
		p := &slice.Ports[i]
		if p.Name == nil {
			p.Name = new("")
		}
		if p.Protocol == nil {
			p.Protocol = new(corev1.ProtocolTCP)
		}
	}
}

// validateEndpointSlice is ValidateEndpointSlice in pkg/apis/discovery/validation of Kubernetes. Besides, it asks for the
// label that names the Service, without which a slice is of no use to kube-proxy.
func validateEndpointSlice(slice, old *discoveryv1.EndpointSlice) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&slice.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	if slice.Labels[discoveryv1.LabelServiceName] == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "labels").Key(discoveryv1.LabelServiceName),
			"the label names the Service whose endpoints these are"))
	}
	types := []discoveryv1.AddressType{discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
	path := field.NewPath("addressType")
	switch {
	case slice.AddressType == "":
		errs = append(errs, field.Required(path, "IPv4, IPv6 or FQDN"))
	case !slices.Contains(types, slice.AddressType):
		errs = append(errs, field.NotSupported(path, slice.AddressType, types))
	case old != nil && old.AddressType != slice.AddressType:
		errs = append(errs, field.Invalid(path, slice.AddressType, "field is immutable"))
	}
	errs = append(errs, validateEndpointPorts(slice.Ports)...)
	const mostEndpoints = 1000
	if n := len(slice.Endpoints); n > mostEndpoints {
		return append(errs, field.TooMany(field.NewPath("endpoints"), n, mostEndpoints))
	}
	for i := range slice.Endpoints {
		errs = append(errs, validateEndpoint(field.NewPath("endpoints").Index(i), slice.AddressType, &slice.Endpoints[i])...)
	}
	return errs
}

func validateEndpointPorts(ports []discoveryv1.EndpointPort) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i, p := range ports {
		path := field.NewPath("ports").Index(i)
		if *p.Name != "" {
			for _, why := range validation.IsDNS1123Label(*p.Name) {
				errs = append(errs, field.Invalid(path.Child("name"), *p.Name, why))
			}
		}
		if names[*p.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), *p.Name))
		}
		names[*p.Name] = true
		if !slices.Contains(protocols, *p.Protocol) {
			errs = append(errs, field.NotSupported(path.Child("protocol"), *p.Protocol, protocols))
		}
		if p.Port != nil {
			for _, why := range validation.IsValidPortNum(int(*p.Port)) {
				errs = append(errs, field.Invalid(path.Child("port"), *p.Port, why))
			}
		}
	}
	return errs
}

func validateEndpoint(path *field.Path, addressType discoveryv1.AddressType, e *discoveryv1.Endpoint) field.ErrorList {
	var errs field.ErrorList
	const mostAddresses = 100
	switch n := len(e.Addresses); {
	case n == 0:
		errs = append(errs, field.Required(path.Child("addresses"), "must contain at least 1 address"))
	case n > mostAddresses:
		errs = append(errs, field.TooMany(path.Child("addresses"), n, mostAddresses))
	}
	for i, text := range e.Addresses {
		at := path.Child("addresses").Index(i)
		switch addressType {
		case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
			bad := validateEndpointIP(at, text)
			if len(bad) == 0 && string(familyOf(netip.MustParseAddr(text))) != string(addressType) {
				bad = field.ErrorList{field.Invalid(at, text, fmt.Sprintf("must be an %s address", addressType))}
			}
			errs = append(errs, bad...)
		case discoveryv1.AddressTypeFQDN:
			errs = append(errs, validation.IsFullyQualifiedDomainName(at, text)...)
		}
	}
	if e.NodeName != nil {
		for _, why := range validation.IsDNS1123Subdomain(*e.NodeName) {
			errs = append(errs, field.Invalid(path.Child("nodeName"), *e.NodeName, why))
		}
	}
	if e.Hostname != nil {
		for _, why := range validation.IsDNS1123Label(*e.Hostname) {
			errs = append(errs, field.Invalid(path.Child("hostname"), *e.Hostname, why))
		}
	}
	return errs
}
