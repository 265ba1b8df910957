package manifest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

const good = `# A comment before the first document.
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports:
  - port: 80
    targetPort: http
---
# Nothing here.
---
{"apiVersion": "discovery.k8s.io/v1",
	"kind": "EndpointSlice",
	"metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
	"addressType": "IPv4",
	"endpoints": [{"addresses": ["10.1.0.1"]}]}
--- # and a list
apiVersion: v1
kind: List
metadata:
  resourceVersion: ""
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: s1}
- {apiVersion: v1, kind: Node, metadata: {name: n1}}
- {apiVersion: v1, kind: Namespace, metadata: {name: other}}
- {apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: kubernetes}, spec: {cidrs: [10.96.0.0/16]}}
`

func TestDecode(t *testing.T) {
	objects, err := Decode("case.txtar", 10, []byte(good))
	require.NoError(t, err)
	require.Len(t, objects, 6)
	svc := objects[0].(*corev1.Service)
	assert.Equal(t, "web", svc.Name)
	assert.Equal(t, "Service", svc.Kind)
	assert.Equal(t, "http", svc.Spec.Ports[0].TargetPort.StrVal)
	assert.Equal(t, discoveryv1.AddressTypeIPv4, objects[1].(*discoveryv1.EndpointSlice).AddressType)
	assert.Equal(t, "s1", objects[2].(*corev1.Pod).Name)
	assert.Equal(t, "n1", objects[3].(*corev1.Node).Name)
	assert.Equal(t, "other", objects[4].(*corev1.Namespace).Name)
	assert.Equal(t, []string{"10.96.0.0/16"}, objects[5].(*networkingv1.ServiceCIDR).Spec.CIDRs)
}

func TestDecodeNothing(t *testing.T) {
	for _, data := range []string{"", "\n", "---\n", "# only a comment\n", "---\n---\n"} {
		objects, err := Decode("f", 1, []byte(data))
		assert.NoError(t, err, "%q", data)
		assert.Empty(t, objects, "%q", data)
	}
}

func TestDecodeErrors(t *testing.T) {
	const head = "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n" // lines 20 to 23
	for name, tc := range map[string]struct {
		data string
		want []string
	}{
		"unknown kind": {
			"apiVersion: v1\nkind: Servise\n",
			[]string{`case.txtar:21: unknown kind "Servise": did you mean "Service"?`},
		},
		"unknown kind, none near": {
			"apiVersion: apps/v1\nkind: Deployment\n",
			[]string{`case.txtar:21: unknown kind "Deployment": known are EndpointSlice, List, Namespace, Node, Pod, Service, ServiceCIDR`},
		},
		"wrong apiVersion": {
			"kind: EndpointSlice\napiVersion: v1\n",
			[]string{`case.txtar:21: unknown apiVersion "v1" of kind EndpointSlice: expected "discovery.k8s.io/v1"`},
		},
		"no kind": {
			"\n\nmetadata: {}\n",
			[]string{`case.txtar:22: apiVersion and kind are required; known kinds are EndpointSlice, List, Namespace, Node, Pod, Service, ServiceCIDR`},
		},
		"unknown fields": {
			head + "spec:\n  ports:\n  - port: 80\n    prot: TCP\n  selctor: {a: b}\n",
			[]string{
				`case.txtar:27: unknown field "spec.ports[0].prot": did you mean "port"?`,
				`case.txtar:28: unknown field "spec.selctor": did you mean "selector"?`,
			},
		},
		"duplicate field": {
			head + "spec:\n  type: NodePort\n  type: NodePort\n",
			[]string{`case.txtar:26: expected YAML or JSON: key "type" already set in map`},
		},
		"duplicate field in JSON": {
			"{\"apiVersion\": \"v1\", \"kind\": \"Pod\",\n\"metadata\": {\"name\": \"a\",\n\"name\": \"b\"}}",
			[]string{`case.txtar:22: duplicate field "metadata.name"`},
		},
		"wrong type": {
			head + "spec:\n  ports:\n  - port: 80\n  - port: eighty\n",
			[]string{`case.txtar:27: spec.ports[1].port: expected a whole number, got string`},
		},
		"wrong type of a list": {
			head + "spec:\n  ports:\n    port: 80\n",
			[]string{`case.txtar:25: spec.ports: expected a list, got a mapping`},
		},
		"wrong type with a decoder of its own": {
			head + "spec:\n  ports:\n  - port: 80\n    targetPort: [1]\n",
			[]string{`case.txtar:25: spec.ports.targetPort: expected a whole number, got array`},
		},
		"label that is no string": {
			head + "  labels:\n    a.b/c: 1\n",
			[]string{`case.txtar:25: metadata.labels.a.b/c: expected a string, got number: put it in quotes`},
		},
		"bad syntax": {
			head + "spec:\n  a: [\n",
			[]string{`case.txtar:25: expected YAML or JSON: did not find expected node content`},
		},
		"not an object": {
			"just words\n",
			[]string{`case.txtar:20: expected an object with apiVersion and kind, got "just words"`},
		},
		"document without separator": {
			"apiVersion: v1\nkind: Pod\n...\nkind: Pod\n",
			[]string{`case.txtar:22: expected --- before another document`},
		},
		"in the second document": {
			head + "---\n" + head + "spec: {typ: NodePort}\n",
			[]string{`case.txtar:29: unknown field "spec.typ": did you mean "type"?`},
		},
		"in an item of a list": {
			"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n- apiVersion: v1\n  kind: Pod\n  spec:\n    hostNam: x\n",
			[]string{`case.txtar:28: unknown field "spec.hostNam": did you mean "hostname"?`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := Decode("case.txtar", 20, []byte(tc.data))
			require.Error(t, err)
			assert.Empty(t, objects)
			assert.Equal(t, tc.want, strings.Split(err.Error(), "\n"))
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("apiVersion: v1\nkind: Service\nspec: {ports: [{port: x}], a.b: &x {c: *x}}\n"))
	f.Add([]byte("{\"kind\":\"Pod\",\n\t\"apiVersion\":\"v1\",\"kind\":\"Node\"}"))
	f.Add([]byte("a: &a [*a]\n---\n? [x]\n: y\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, err := Decode("f", 1, data)
		if err == nil {
			for _, o := range objects {
				assert.NotEmpty(t, o.GetObjectKind().GroupVersionKind().Kind)
			}
			return
		}
		assert.Empty(t, objects)
		lines := strings.Count(string(data), "\n") + 1
		for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
			mistake := e.(*Error)
			assert.NotContains(t, mistake.Error(), "\n")
			assert.GreaterOrEqual(t, mistake.Line, 1)
			assert.LessOrEqual(t, mistake.Line, lines)
		}
	})
}
