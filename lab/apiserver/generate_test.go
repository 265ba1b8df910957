package apiserver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pod is a manifest of a ready pod with the label app: web and a port named http.
func pod(name, ips, more string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: web}}
spec: {nodeName: n1, containers: [{name: c, ports: [{name: http, containerPort: 8080}]}]}
status: {podIPs: [%s], conditions: [{type: Ready, status: "True"}]%s}
---
`, name, ips, more)
}

// shape is a slice in short: "web-ipv4 http=8080/TCP: 10.1.0.1 rs-".
func shape(slices []*discoveryv1.EndpointSlice) []string {
	var lines []string
	for _, slice := range slices {
		var b strings.Builder
		b.WriteString(slice.Name)
		for _, p := range slice.Ports {
			fmt.Fprintf(&b, " %s=%d/%s", *p.Name, *p.Port, *p.Protocol)
		}
		b.WriteString(":")
		for _, e := range slice.Endpoints {
			fmt.Fprintf(&b, " %s ", strings.Join(e.Addresses, ","))
			b.WriteString(map[bool]string{true: "r", false: "-"}[*e.Conditions.Ready])
			b.WriteString(map[bool]string{true: "s", false: "-"}[*e.Conditions.Serving])
			b.WriteString(map[bool]string{true: "t", false: "-"}[*e.Conditions.Terminating])
		}
		lines = append(lines, b.String())
	}
	return lines
}

func TestGenerateEndpointSlices(t *testing.T) {
	s := New(Config{})
	apply(t, s, svc("web", "ipFamilyPolicy: RequireDualStack, selector: {app: web}, ports: [{port: 80, targetPort: http, name: a}, {port: 81, name: b}]"))
	assert.Equal(t, []string{"web-ipv4:", "web-ipv6:"}, shape(s.EndpointSlices("", "web")), "placeholders")

	apply(t, s, pod("s1", "{ip: 10.1.0.1}, {ip: 'fd00::1'}", ""))
	slices := s.EndpointSlices("", "web")
	assert.Equal(t, []string{
		"web-ipv4 a=8080/TCP b=81/TCP: 10.1.0.1 rs-",
		"web-ipv6 a=8080/TCP b=81/TCP: fd00::1 rs-",
	}, shape(slices))
	assert.Equal(t, map[string]string{
		"kubernetes.io/service-name":             "web",
		"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
	}, slices[0].Labels)
	assert.Equal(t, "n1", *slices[0].Endpoints[0].NodeName)
	assert.Equal(t, "s1", slices[0].Endpoints[0].TargetRef.Name)
	assert.Equal(t, "web", slices[0].OwnerReferences[0].Name)
	_, err := time.Parse(time.RFC3339Nano, slices[0].Annotations["endpoints.kubernetes.io/last-change-trigger-time"])
	assert.NoError(t, err)

	// Not ready, IPv4 only, done, terminating, another port of that name.
	apply(t, s,
		pod("s2", "{ip: 10.1.0.2}", ", phase: Running"),
		pod("s3", "{ip: 10.1.0.3}", ", phase: Failed"),
		strings.Replace(pod("s2", "{ip: 10.1.0.2}", ""), `"True"`, `"False"`, 1),
		strings.Replace(pod("s4", "{ip: 10.1.0.4}", ""), "name: s4,", "name: s4, deletionTimestamp: '2030-01-01T00:00:00Z',", 1),
		strings.Replace(pod("s5", "{ip: 10.1.0.5}", ""), "8080", "9090", 1),
	)
	assert.Equal(t, []string{
		"web-ipv4 a=8080/TCP b=81/TCP: 10.1.0.1 rs- 10.1.0.2 --- 10.1.0.4 -st",
		"web-ipv4-2 a=9090/TCP b=81/TCP: 10.1.0.5 rs-",
		"web-ipv6 a=8080/TCP b=81/TCP: fd00::1 rs-",
	}, shape(s.EndpointSlices("", "web")))

	// What does not change is not touched.
	before := s.Changes()
	unchanged := s.EndpointSlices("", "web")
	require.NoError(t, s.Delete(t.Context(), "Pod", "", "s3"))
	apply(t, s, `{apiVersion: v1, kind: Pod, metadata: {name: stranger, labels: {app: other}}, status: {podIP: 10.1.0.9}}`)
	assert.Equal(t, unchanged, s.EndpointSlices("", "web"))
	assert.Equal(t, before, s.Changes())

	// Pods go, and the Service's labels, family and selector change.
	for _, name := range []string{"s1", "s2", "s4"} {
		require.NoError(t, s.Delete(t.Context(), "Pod", "", name))
	}
	assert.Equal(t, []string{"web-ipv4-2 a=9090/TCP b=81/TCP: 10.1.0.5 rs-", "web-ipv6:"}, shape(s.EndpointSlices("", "web")))
	apply(t, s, `{apiVersion: v1, kind: Service, metadata: {name: web, labels: {x: z}}, spec: {ipFamilyPolicy: SingleStack, selector: {app: other}, ports: [{port: 80}]}}`)
	slices = s.EndpointSlices("", "web")
	assert.Equal(t, []string{"web-ipv4-2 =80/TCP: 10.1.0.9 ---"}, shape(slices))
	assert.Equal(t, "z", slices[0].Labels["x"])

	// A label change moves a pod out of one Service and into another.
	apply(t, s, svc("second", "selector: {app: moved}, ports: [{port: 80}]"),
		`{apiVersion: v1, kind: Pod, metadata: {name: stranger, labels: {app: moved}}, status: {podIP: 10.1.0.9}}`)
	assert.Equal(t, []string{"web-ipv4-2:"}, shape(s.EndpointSlices("", "web")))
	assert.Equal(t, []string{"second-ipv4 =80/TCP: 10.1.0.9 ---"}, shape(s.EndpointSlices("", "second")))

	require.NoError(t, s.Delete(t.Context(), "Service", "", "web"))
	assert.Empty(t, s.EndpointSlices("", "web"))
}

func TestHeadlessAndGivenSlices(t *testing.T) {
	s := New(Config{})
	apply(t, s, pod("s1", "{ip: 10.1.0.1}", ""), svc("none", "clusterIP: None, selector: {app: web}"), svc("manual", "ports: [{port: 80}]"))
	none := s.EndpointSlices("", "none")
	assert.Equal(t, []string{"none-ipv4: 10.1.0.1 rs-"}, shape(none))
	assert.Contains(t, none[0].Labels, corev1.IsHeadlessService)
	assert.Empty(t, s.EndpointSlices("", "manual"))
	assert.Equal(t, Changes{Services: 1}, s.Changes(), "headless ones do not count")

	apply(t, s, `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: mine, labels: {kubernetes.io/service-name: manual}}, addressType: IPv4, ports: [{port: 8080}], endpoints: [{addresses: [10.1.0.1]}]}`)
	given := s.EndpointSlices("", "manual")
	require.Len(t, given, 1)
	assert.Equal(t, corev1.ProtocolTCP, *given[0].Ports[0].Protocol)
	assert.Equal(t, Changes{Services: 1, EndpointSlices: 1, IPv4EndpointSlices: 1}, s.Changes())

	require.NoError(t, s.Delete(t.Context(), "Service", "", "manual"))
	assert.Empty(t, s.EndpointSlices("", "manual"))
}

// TestManyEndpoints: a slice holds at most 100, and endpoints stay where they are.
func TestManyEndpoints(t *testing.T) {
	s := New(Config{})
	apply(t, s, svc("web", "selector: {app: web}, ports: [{port: 80}]"))
	for i := range 150 {
		require.NoError(t, s.Apply(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%03d", i), Labels: map[string]string{"app": "web"}},
			Status:     corev1.PodStatus{PodIP: fmt.Sprintf("10.1.0.%d", i+1)},
		}))
	}
	slices := s.EndpointSlices("", "web")
	require.Len(t, slices, 2)
	assert.Len(t, slices[0].Endpoints, 100)
	assert.Len(t, slices[1].Endpoints, 50)
	require.NoError(t, s.Delete(t.Context(), "Pod", "", "p007"))
	after := s.EndpointSlices("", "web")
	assert.Len(t, after[0].Endpoints, 99)
	assert.Equal(t, slices[1], after[1])
}

func TestTrafficDistribution(t *testing.T) {
	s := New(Config{})
	apply(t, s, `{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {topology.kubernetes.io/zone: z1}}}`,
		pod("s1", "{ip: 10.1.0.1}", ""), svc("web", "selector: {app: web}, trafficDistribution: PreferSameNode, ports: [{port: 80}]"))
	e := s.EndpointSlices("", "web")[0].Endpoints[0]
	assert.Equal(t, "z1", *e.Zone)
	assert.Equal(t, &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z1"}}, ForNodes: []discoveryv1.ForNode{{Name: "n1"}}}, e.Hints)
}
