package script

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kplab/lab"
)

var networks = []string{"tcp", "udp", "sctp"}

// addressNames are the addresses a host may have.
var addressNames = []string{"primary", "secondary", "floating", "mgmt", "localhost"}

// target is where a probe goes, as written: PLACE[:PORT].
type target struct {
	text  string
	place string // "n1", "n1.secondary", "localhost", "svc/web", "lb/web", "external/web", "10.96.0.10"
	port  string // "30080", "nodeport/web", "nodeport/web/http", "port/web", "healthcheck/web"; "" with svc/NAME: the Service's first
}

const targetHelp = "HOST[.ADDRESS], localhost, svc/NAME, lb/NAME, external/NAME, an IPv4 address or [an IPv6 address]; then :NUMBER, :nodeport/SVC[/PORTNAME], :port/SVC[/PORTNAME] or :healthcheck/SVC (its healthCheckNodePort)"

func parseTarget(text string) (target, error) {
	t := target{text: text}
	if rest, ok := strings.CutPrefix(text, "["); ok {
		inside, after, ok := strings.Cut(rest, "]")
		if !ok {
			return t, fmt.Errorf("target %q: missing ]", text)
		}
		t.place, t.port = inside, strings.TrimPrefix(after, ":")
	} else {
		t.place, t.port, _ = strings.Cut(text, ":")
	}
	if t.place == "" {
		return t, fmt.Errorf("target %q: expected %s", text, targetHelp)
	}
	kind, _, isObject := strings.Cut(t.place, "/")
	if isObject && !slices.Contains([]string{"svc", "lb", "external"}, kind) {
		return t, fmt.Errorf("target %q: unknown %q%s", text, kind+"/", lab.Suggest(kind+"/", []string{"svc/", "lb/", "external/"}))
	}
	if _, err := netip.ParseAddr(t.place); err != nil && !isObject {
		if _, name, ok := strings.Cut(t.place, "."); ok && !slices.Contains(addressNames, name) {
			return t, fmt.Errorf("target %q: unknown address %q%s", text, name, lab.Suggest(name, addressNames))
		}
	}
	if t.port != "" {
		kind, name, named := strings.Cut(t.port, "/")
		if named && (name == "" || !slices.Contains([]string{"nodeport", "port", "healthcheck"}, kind)) {
			return t, fmt.Errorf("target %q: port: expected a number, nodeport/SVC, port/SVC or healthcheck/SVC", text)
		}
		if !named {
			if _, err := parsePort(t.port); err != nil {
				return t, fmt.Errorf("target %q: %w", text, err)
			}
		}
	}
	return t, nil
}

func parsePort(s string) (int, error) {
	port, err := strconv.Atoi(s)
	if err != nil || port < 1 || port > 65535 {
		return 0, fmt.Errorf("port %q: expected a number from 1 to 65535", s)
	}
	return port, nil
}

// resolve finds the address and port that a target means to a client.
func (s *session) resolve(ctx context.Context, t target, from lab.Host, network string, family lab.Family) (netip.AddrPort, error) {
	addr, svc, err := s.resolvePlace(ctx, t, from, family)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port, err := s.resolvePort(ctx, t, svc, network)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(addr, port), nil
}

func (s *session) resolvePlace(ctx context.Context, t target, from lab.Host, family lab.Family) (netip.Addr, *corev1.Service, error) {
	if addr, err := netip.ParseAddr(t.place); err == nil {
		return addr, nil, nil
	}
	if kind, name, ok := strings.Cut(t.place, "/"); ok {
		svc, err := s.Env.Service(ctx, namespace, name)
		if err != nil {
			return netip.Addr{}, nil, err
		}
		var candidates []string
		switch kind {
		case "svc":
			candidates = svc.Spec.ClusterIPs
		case "external":
			candidates = svc.Spec.ExternalIPs
		case "lb":
			for _, in := range svc.Status.LoadBalancer.Ingress {
				candidates = append(candidates, in.IP)
			}
		}
		for _, c := range candidates {
			if addr, err := netip.ParseAddr(c); err == nil && addr.Is6() == (family == lab.IPv6) {
				return addr, svc, nil
			}
		}
		return netip.Addr{}, nil, fmt.Errorf("target %q: Service %s has no IPv%d address there, only %q", t.text, name, family, candidates)
	}
	name, address, ok := strings.Cut(t.place, ".")
	if !ok {
		address = "primary"
	}
	host := from
	if t.place == "localhost" {
		address = "localhost"
	} else {
		var err error
		if host, err = s.Env.Host(name); err != nil {
			return netip.Addr{}, nil, fmt.Errorf("target %q: %w", t.text, err)
		}
	}
	addr, ok := host.Address(address, family)
	if !ok {
		return netip.Addr{}, nil, fmt.Errorf("target %q: %s has no IPv%d address %q", t.text, host.Name(), family, address)
	}
	return addr, nil, nil
}

func (s *session) resolvePort(ctx context.Context, t target, svc *corev1.Service, network string) (uint16, error) {
	if port, err := strconv.Atoi(t.port); err == nil {
		return uint16(port), nil
	}
	if t.port == "" && svc == nil {
		if network == "icmp" {
			return 0, nil
		}
		return 0, fmt.Errorf("target %q: no port", t.text)
	}
	kind, portName := "port", ""
	if t.port != "" {
		var name string
		kind, name, _ = strings.Cut(t.port, "/")
		name, portName, _ = strings.Cut(name, "/")
		var err error
		if svc, err = s.Env.Service(ctx, namespace, name); err != nil {
			return 0, err
		}
	}
	if kind == "healthcheck" {
		if svc.Spec.HealthCheckNodePort == 0 {
			return 0, fmt.Errorf("target %q: Service %s has no healthCheckNodePort (type %s, externalTrafficPolicy %s)", t.text, svc.Name, svc.Spec.Type, svc.Spec.ExternalTrafficPolicy)
		}
		return uint16(svc.Spec.HealthCheckNodePort), nil
	}
	for _, p := range svc.Spec.Ports {
		if portName != "" && p.Name != portName || network != "icmp" && !strings.EqualFold(string(p.Protocol), network) {
			continue
		}
		if kind == "nodeport" {
			if p.NodePort == 0 {
				return 0, fmt.Errorf("target %q: Service %s has no node port (type %s)", t.text, svc.Name, svc.Spec.Type)
			}
			return uint16(p.NodePort), nil
		}
		return uint16(p.Port), nil
	}
	return 0, fmt.Errorf("target %q: Service %s has no %s port %s", t.text, svc.Name, network, portName)
}

// endpointPort is the port on which the endpoints of a target listen: the targetPort of the Service's port, or the port itself.
func (s *session) endpointPort(ctx context.Context, t target, network string) (uint16, error) {
	_, name, isService := strings.Cut(t.place, "/")
	if kind, object, named := strings.Cut(t.port, "/"); named && kind != "healthcheck" {
		name, _, _ = strings.Cut(object, "/")
		isService = true
	}
	var svc *corev1.Service
	if isService {
		var err error
		if svc, err = s.Env.Service(ctx, namespace, name); err != nil {
			return 0, err
		}
	}
	port, err := s.resolvePort(ctx, t, svc, network)
	if err != nil || svc == nil {
		return port, err
	}
	for _, p := range svc.Spec.Ports {
		if strings.EqualFold(string(p.Protocol), network) && (p.Port == int32(port) || p.NodePort == int32(port)) && p.TargetPort.IntValue() != 0 {
			return uint16(p.TargetPort.IntValue()), nil
		}
	}
	return port, nil
}

// families reads the flag that says which IP families to use.
func families(flag string) ([]lab.Family, bool) {
	switch flag {
	case "-4":
		return []lab.Family{lab.IPv4}, true
	case "-6":
		return []lab.Family{lab.IPv6}, true
	case "-46":
		return []lab.Family{lab.IPv4, lab.IPv6}, true
	}
	return nil, false
}

// takeFamilies takes the family flag off the front of a command's arguments; IPv4 is the default.
func takeFamilies(args []string) ([]lab.Family, []string) {
	if len(args) > 0 {
		if f, ok := families(args[0]); ok {
			return f, args[1:]
		}
	}
	return []lab.Family{lab.IPv4}, args
}

// familyFlag is how one family is written in an observation.
func familyFlag(f lab.Family) string {
	if f == lab.IPv6 {
		return "-6 "
	}
	return ""
}
