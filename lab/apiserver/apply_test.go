package apiserver

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func manifestOf(kind, name, rest string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: %s, metadata: {name: %s}%s}\n---\n", kind, name, rest)
}

// svc is a manifest of a Service.
func svc(name, spec string) string { return manifestOf("Service", name, ", spec: {"+spec+"}") }

func TestServiceDefaults(t *testing.T) {
	s := New(Config{})
	apply(t, s, svc("web", "ports: [{port: 80}]"))
	got := service(t, s, "web")
	assert.Equal(t, "default", got.Namespace)
	assert.NotEmpty(t, got.UID)
	assert.NotEmpty(t, got.ResourceVersion)
	assert.False(t, got.CreationTimestamp.IsZero())
	assert.Equal(t, int64(1), got.Generation)
	assert.Equal(t, corev1.ServiceSpec{
		Type:                  corev1.ServiceTypeClusterIP,
		ClusterIP:             "10.96.0.10",
		ClusterIPs:            []string{"10.96.0.10"},
		IPFamilies:            []corev1.IPFamily{corev1.IPv4Protocol},
		IPFamilyPolicy:        new(corev1.IPFamilyPolicySingleStack),
		SessionAffinity:       corev1.ServiceAffinityNone,
		InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
		Ports:                 []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(80)}},
	}, got.Spec)

	apply(t, s, svc("lb", "type: LoadBalancer, externalTrafficPolicy: Local, sessionAffinity: ClientIP, ipFamilyPolicy: PreferDualStack, ports: [{port: 53, name: u, protocol: UDP}, {port: 53, name: t, targetPort: dns}]"))
	got = service(t, s, "lb")
	assert.Equal(t, []string{"10.96.0.11", "fd00:10:96::a"}, got.Spec.ClusterIPs)
	assert.Equal(t, int32(10800), *got.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds)
	assert.True(t, *got.Spec.AllocateLoadBalancerNodePorts)
	assert.Equal(t, int32(30000), got.Spec.Ports[0].NodePort)
	assert.Equal(t, int32(30000), got.Spec.Ports[1].NodePort, "the same port of another protocol has the same node port")
	assert.Equal(t, int32(30001), got.Spec.HealthCheckNodePort)

	apply(t, s, svc("np", "type: NodePort, ipFamilies: [IPv6], ports: [{port: 80}]"))
	got = service(t, s, "np")
	assert.Equal(t, []string{"fd00:10:96::b"}, got.Spec.ClusterIPs)
	assert.Equal(t, corev1.ServiceExternalTrafficPolicyCluster, got.Spec.ExternalTrafficPolicy)
	assert.Equal(t, int32(30002), got.Spec.Ports[0].NodePort)

	apply(t, s, svc("none", "clusterIP: None, selector: {a: b}"), svc("manual", "clusterIP: None"), svc("name", "type: ExternalName, externalName: example.org"))
	assert.Equal(t, []corev1.IPFamily{corev1.IPv4Protocol}, service(t, s, "none").Spec.IPFamilies)
	assert.Equal(t, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, service(t, s, "manual").Spec.IPFamilies)
	assert.Empty(t, service(t, s, "name").Spec.ClusterIPs)

	apply(t, s, svc("nolbports", "type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{port: 80}]"))
	assert.Zero(t, service(t, s, "nolbports").Spec.Ports[0].NodePort)
}

func TestLoadBalancerStatus(t *testing.T) {
	s := New(Config{})
	const spec = ", spec: {type: LoadBalancer, ports: [{port: 80}]}"
	apply(t, s, manifestOf("Service", "lb", spec+", status: {loadBalancer: {ingress: [{ip: 192.0.2.1}, {ip: 192.0.2.2, ipMode: Proxy}]}}"))
	ingress := service(t, s, "lb").Status.LoadBalancer.Ingress
	require.Len(t, ingress, 2)
	assert.Equal(t, corev1.LoadBalancerIPModeVIP, *ingress[0].IPMode)
	assert.Equal(t, corev1.LoadBalancerIPModeProxy, *ingress[1].IPMode)

	apply(t, s, manifestOf("Service", "lb", spec))
	assert.Len(t, service(t, s, "lb").Status.LoadBalancer.Ingress, 2, "kept")
	apply(t, s, svc("lb", "ports: [{port: 80}]"))
	assert.Empty(t, service(t, s, "lb").Status.LoadBalancer.Ingress, "no longer a load balancer")
}

func TestUpdateKeepsAllocated(t *testing.T) {
	s := New(Config{})
	apply(t, s, svc("web", "type: NodePort, ipFamilyPolicy: RequireDualStack, ports: [{port: 80, name: a}, {port: 81, name: b}]"))
	before := service(t, s, "web")
	apply(t, s, svc("web", "type: NodePort, ipFamilyPolicy: RequireDualStack, ports: [{port: 80, name: a}, {port: 81, name: b}]"))
	assert.Equal(t, before, service(t, s, "web"), "nothing changed")

	apply(t, s, svc("web", "type: NodePort, ports: [{port: 81, name: b}, {port: 82, name: c}]"))
	got := service(t, s, "web")
	assert.Equal(t, before.Spec.ClusterIPs, got.Spec.ClusterIPs)
	assert.Equal(t, before.UID, got.UID)
	assert.Equal(t, int64(2), got.Generation)
	assert.Equal(t, int32(30001), got.Spec.Ports[0].NodePort)
	assert.Equal(t, int32(30000), got.Spec.Ports[1].NodePort, "freed and the lowest")

	apply(t, s, svc("web", "type: NodePort, ipFamilyPolicy: SingleStack, ports: [{port: 81, name: b}]"))
	assert.Equal(t, []string{"10.96.0.10"}, service(t, s, "web").Spec.ClusterIPs)
	apply(t, s, svc("six", "ipFamilies: [IPv6], ports: [{port: 80}]"))
	assert.Equal(t, "fd00:10:96::a", service(t, s, "six").Spec.ClusterIP, "the second address was released")

	apply(t, s, svc("web", "ports: [{port: 81, name: b}]"))
	assert.Zero(t, service(t, s, "web").Spec.Ports[0].NodePort)
	apply(t, s, svc("web", "type: ExternalName, externalName: example.org"))
	assert.Empty(t, service(t, s, "web").Spec.ClusterIP)
	apply(t, s, svc("other", "type: NodePort, clusterIP: 10.96.0.10, ports: [{port: 80, nodePort: 30001}]"))

	require.NoError(t, s.Delete(t.Context(), "Service", "", "other"))
	apply(t, s, svc("web", "type: NodePort, ports: [{port: 80}]"))
	assert.Equal(t, "10.96.0.10", service(t, s, "web").Spec.ClusterIP)
	assert.Equal(t, int32(30000), service(t, s, "web").Spec.Ports[0].NodePort)
}

// TestNamedBeforeAllocated: what an object of the call names is not allocated to another.
func TestNamedBeforeAllocated(t *testing.T) {
	s := New(Config{})
	apply(t, s, svc("a", "type: NodePort, ports: [{port: 80}]")+svc("b", "type: NodePort, clusterIP: 10.96.0.10, ports: [{port: 80, nodePort: 30000}]"))
	assert.Equal(t, "10.96.0.11", service(t, s, "a").Spec.ClusterIP)
	assert.Equal(t, int32(30001), service(t, s, "a").Spec.Ports[0].NodePort)
	// Two Services swap.
	apply(t, s, svc("a", "type: NodePort, ports: [{port: 80, nodePort: 30000}]")+svc("b", "type: NodePort, ports: [{port: 80, nodePort: 30001}]"))
	assert.Equal(t, int32(30000), service(t, s, "a").Spec.Ports[0].NodePort)
}

func TestApplyErrors(t *testing.T) {
	const existing = "{apiVersion: v1, kind: Service, metadata: {name: first}, spec: {type: NodePort, ports: [{port: 80, nodePort: 30080}]}}"
	slice := func(rest string) string {
		return "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: e, labels: {kubernetes.io/service-name: web}}, " + rest + "}"
	}
	for name, tc := range map[string]struct{ manifest, want string }{
		"no ports":              {svc("web", ""), "Service default/web: spec.ports: Required value"},
		"no port names":         {svc("web", "ports: [{port: 80, name: a}, {port: 81}]"), "Service default/web: spec.ports[1].name: Required value"},
		"port name twice":       {svc("web", "ports: [{port: 80, name: a}, {port: 81, name: a}]"), `Service default/web: spec.ports[1].name: Duplicate value: "a"`},
		"port twice":            {svc("web", "ports: [{port: 80, name: a}, {port: 80, name: b}]"), `Service default/web: spec.ports[1]: Duplicate value: "TCP 80"`},
		"port out of range":     {svc("web", "ports: [{port: 0}]"), "Service default/web: [spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive, spec.ports[0].targetPort: Invalid value: \"0\": must be between 1 and 65535, inclusive]"},
		"protocol":              {svc("web", "ports: [{port: 80, protocol: tcp}]"), `Service default/web: spec.ports[0].protocol: Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP"`},
		"target port name":      {svc("web", "ports: [{port: 80, targetPort: a_b}]"), `Service default/web: spec.ports[0].targetPort: Invalid value: "a_b": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)`},
		"type":                  {svc("web", "type: Nodeport, ports: [{port: 80}]"), `Service default/web: spec.type: Unsupported value: "Nodeport": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"`},
		"node port in use":      {svc("web", "type: NodePort, ports: [{port: 80, nodePort: 30080}]"), "Service default/web: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated to Service default/first"},
		"of another protocol":   {svc("web", "type: NodePort, ports: [{port: 80, nodePort: 30080, protocol: UDP}]"), "Service default/web: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated to Service default/first"},
		"within the call":       {svc("a", "type: NodePort, ports: [{port: 80, nodePort: 30081}]") + svc("b", "type: NodePort, ports: [{port: 80, nodePort: 30081}]"), "Service default/b: spec.ports[0].nodePort: Invalid value: 30081: provided port is already allocated to Service default/a"},
		"node port range":       {svc("web", "type: NodePort, ports: [{port: 80, nodePort: 80}]"), "Service default/web: spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767"},
		"node port of type":     {svc("web", "ports: [{port: 80, nodePort: 30081}]"), "Service default/web: spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"},
		"cluster IP in use":     {svc("web", "clusterIP: 10.96.0.10, ports: [{port: 80}]"), `Service default/web: spec.clusterIPs[0]: Invalid value: "10.96.0.10": provided IP is already allocated to Service default/first`},
		"cluster IP range":      {svc("web", "clusterIP: 10.1.0.10, ports: [{port: 80}]"), `Service default/web: spec.clusterIPs[0]: Invalid value: "10.1.0.10": provided IP is not in the valid range. The range of valid IPs is 10.96.0.0/16`},
		"cluster IP changes":    {svc("first", "type: NodePort, clusterIP: 10.96.0.11, ports: [{port: 80}]"), `Service default/first: spec.clusterIPs[0]: Invalid value: ["10.96.0.11"]: may not change once set`},
		"cluster IPs of one":    {svc("web", "clusterIP: 10.96.1.1, clusterIPs: [10.96.1.1, 10.96.1.2], ipFamilyPolicy: PreferDualStack, ports: [{port: 80}]"), `Service default/web: spec.clusterIPs: Invalid value: ["10.96.1.1","10.96.1.2"]: may specify no more than one IP for each IP family`},
		"single with two":       {svc("web", "ipFamilies: [IPv4, IPv6], ports: [{port: 80}]"), `Service default/web: spec.ipFamilyPolicy: Invalid value: "SingleStack": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified`},
		"traffic policy":        {svc("web", "externalTrafficPolicy: Local, ports: [{port: 80}]"), `Service default/web: spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services`},
		"ranges of type":        {svc("web", "loadBalancerSourceRanges: [10.0.0.0/8], ports: [{port: 80}]"), "Service default/web: spec.loadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'"},
		"affinity timeout":      {svc("web", "sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 0}}, ports: [{port: 80}]"), "Service default/web: spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 0: must be greater than 0 and less than 86400"},
		"namespace":             {"{apiVersion: v1, kind: Service, metadata: {name: web, namespace: other}, spec: {ports: [{port: 80}]}}", `Service other/web: metadata.namespace: Not found: "other"`},
		"name":                  {svc("Web", "ports: [{port: 80}]"), `Service default/Web: metadata.name: Invalid value: "Web": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`},
		"twice":                 {svc("web", "ports: [{port: 80}]") + svc("web", "ports: [{port: 81}]"), `Service default/web: metadata.name: Duplicate value: "web"`},
		"external IP":           {svc("web", "externalIPs: [127.0.0.1], ports: [{port: 80}]"), `Service default/web: spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`},
		"slice without label":   {"{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: e}, addressType: IPv4, endpoints: []}", "EndpointSlice default/e: metadata.labels[kubernetes.io/service-name]: Required value: the label names the Service whose endpoints these are"},
		"slice without type":    {slice("endpoints: []"), "EndpointSlice default/e: addressType: Required value: IPv4, IPv6 or FQDN"},
		"slice of other family": {slice("addressType: IPv6, endpoints: [{addresses: [10.1.0.1]}]"), `EndpointSlice default/e: endpoints[0].addresses[0]: Invalid value: "10.1.0.1": must be an IPv6 address`},
		"pod address":           {manifestOf("Pod", "p", ", status: {podIP: 10.1.0}"), `Pod default/p: status.podIPs[0].ip: Invalid value: "10.1.0": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Config{})
			apply(t, s, existing)
			before, changes := s.Objects(), s.Changes()
			bystander := svc("bystander", "type: NodePort, ports: [{port: 80}]")
			err := s.Apply(t.Context(), objects(t, bystander+tc.manifest)...)
			require.EqualError(t, err, tc.want)
			var wrong *ObjectError
			assert.ErrorAs(t, err, &wrong)
			assert.Equal(t, before, s.Objects(), "nothing is stored when anything is wrong")
			assert.Equal(t, changes, s.Changes())

			apply(t, s, bystander)
			assert.Equal(t, "10.96.0.11", service(t, s, "bystander").Spec.ClusterIP, "nothing stays allocated")
			assert.Equal(t, int32(30000), service(t, s, "bystander").Spec.Ports[0].NodePort)
		})
	}
}

func TestApplyReportsEachObject(t *testing.T) {
	err := New(Config{}).Apply(t.Context(), append(objects(t, svc("a", "")+svc("b", "")), &eventsv1.Event{})...)
	require.Error(t, err)
	lines := strings.Split(err.Error(), "\n")
	assert.Equal(t, []string{
		"object of type *v1.Event cannot be stored: known kinds are [Namespace ServiceCIDR Node Pod Service EndpointSlice]",
		"Service default/a: spec.ports: Required value",
		"Service default/b: spec.ports: Required value",
	}, lines)
}

func TestExhaustion(t *testing.T) {
	s := New(Config{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/27")}, NodePorts: PortRange{40000, 40001}})
	var got []string
	for i := range 30 {
		name := fmt.Sprintf("s%d", i)
		apply(t, s, svc(name, "ports: [{port: 80}]"))
		got = append(got, service(t, s, name).Spec.ClusterIP)
	}
	assert.Equal(t, "10.0.0.10", got[0])
	assert.Equal(t, "10.0.0.30", got[20])
	assert.Equal(t, "10.0.0.1", got[21])
	err := s.Apply(t.Context(), objects(t, svc("more", "ports: [{port: 80}]"))...)
	assert.EqualError(t, err, "Service default/more: spec.clusterIPs: Invalid value: null: failed to allocate an IP: no free address in 10.0.0.0/27")
	require.NoError(t, s.Delete(t.Context(), "Service", "default", "s3"))
	apply(t, s, svc("more", "type: LoadBalancer, externalTrafficPolicy: Local, ports: [{port: 80}]"))
	assert.Equal(t, "10.0.0.13", service(t, s, "more").Spec.ClusterIP)
	err = s.Apply(t.Context(), objects(t, svc("s1", "type: NodePort, ports: [{port: 80}]"))...)
	assert.EqualError(t, err, "Service default/s1: spec.ports[0].nodePort: Invalid value: 0: no free port in 40000-40001")
	err = s.Apply(t.Context(), objects(t, svc("s1", "ipFamilyPolicy: RequireDualStack, ports: [{port: 80}]"))...)
	assert.ErrorContains(t, err, "this cluster is not configured for dual-stack services")
}

func TestServiceCIDR(t *testing.T) {
	s := New(Config{})
	const more = "{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: more}, spec: {cidrs: [10.97.0.0/24]}}\n---\n"
	require.Error(t, s.Apply(t.Context(), objects(t, more+svc("bad", ""))...))
	require.Error(t, s.Apply(t.Context(), objects(t, svc("a", "clusterIP: 10.97.0.5, ports: [{port: 80}]"))...), "the range went with the failed call")
	apply(t, s, svc("a", "clusterIP: 10.97.0.5, ports: [{port: 80}]")+"---\n"+more)
	assert.Equal(t, "10.97.0.5", service(t, s, "a").Spec.ClusterIP)
}

func TestDelete(t *testing.T) {
	s := New(Config{})
	err := s.Delete(t.Context(), "Service", "", "web")
	assert.True(t, apierrors.IsNotFound(err))
	assert.EqualError(t, err, `Service default/web: services "web" not found`)
	assert.EqualError(t, s.Delete(t.Context(), "service", "", "web"), `delete web: unknown kind "service": did you mean "Service"?`)
	_, err = s.Service("", "web")
	assert.True(t, apierrors.IsNotFound(err))
	assert.Error(t, s.Delete(t.Context(), "Namespace", "", "default"))

	apply(t, s, manifestOf("Namespace", "other", ""), `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: other}, spec: {selector: {a: b}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: other, labels: {a: b}}}`)
	require.Len(t, s.EndpointSlices("other", "web"), 1)
	require.NoError(t, s.Delete(t.Context(), "Namespace", "", "other"))
	assert.Empty(t, s.EndpointSlices("other", "web"))
	assert.Empty(t, s.Pods())
	assert.Equal(t, Changes{}, s.Existing())
	assert.Equal(t, Changes{Services: 2, EndpointSlices: 2, IPv4EndpointSlices: 2}, s.Changes())
}

// TestApplyCopies: the server and its callers share no objects.
func TestApplyCopies(t *testing.T) {
	s := New(Config{})
	given := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	require.NoError(t, s.Apply(t.Context(), given))
	assert.Empty(t, given.Namespace)
	assert.Empty(t, given.Spec.ClusterIP)
	given.Spec.Ports[0].Port = 81
	service(t, s, "web").Spec.Ports[0].Port = 82
	assert.Equal(t, int32(80), service(t, s, "web").Spec.Ports[0].Port)
}
