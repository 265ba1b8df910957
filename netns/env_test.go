package netns

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
	"kplab/lab/manifest"
	"kplab/lab/probe"
)

const service = `apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  ipFamilyPolicy: RequireDualStack
  selector: {app: server}
  ports: [{port: 80, targetPort: 8080}]
`

func newEnv(t *testing.T) lab.Env {
	t.Helper()
	e, err := New(t.Context(), lab.Job{Root: "/"}, lab.Cell{Mode: lab.NFTables, KubeProxy: lab.DefaultKubeProxy}, lab.Machine{Unit: 1})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	return e
}

func TestApplyMakesPodsServe(t *testing.T) {
	e := newEnv(t)
	objects, err := manifest.Decode("web.yaml", 1, []byte(service))
	require.NoError(t, err)
	require.NoError(t, e.Apply(t.Context(), objects))
	svc, err := e.Service(t.Context(), "default", "web")
	require.NoError(t, err)
	assert.Len(t, svc.Spec.ClusterIPs, 2)
	assert.NotZero(t, svc.Spec.Ports[0].NodePort)

	c1, err := e.Host("c1")
	require.NoError(t, err)
	for _, target := range []string{"10.244.1.10:8080", "[fd00:244:2::10]:8080"} {
		out, err := probe.Dial(t.Context(), c1, probe.Request{Network: "tcp", Target: netip.MustParseAddrPort(target), Timeout: 5 * time.Second})
		require.NoError(t, err)
		assert.Equal(t, probe.Reachable, out.Kind, target)
		assert.Equal(t, "c1", e.Owner(out.Source.Addr()), "pods are routed, not masqueraded")
	}
}

func TestApplyRefusesWhatAnAPIServerWould(t *testing.T) {
	e := newEnv(t)
	for _, tc := range []struct{ name, manifest, want string }{
		{"no ports", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {selector: {app: server}}\n", "port"},
		{"node port twice", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {type: NodePort, ports: [{port: 80, nodePort: 30000}]}\n---\n" +
			"apiVersion: v1\nkind: Service\nmetadata: {name: b}\nspec: {type: NodePort, ports: [{port: 80, nodePort: 30000}]}\n", "30000"},
		{"external IP outside the env", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {externalIPs: [203.0.113.7], ports: [{port: 80}]}\n", "Service a: address 203.0.113.7 is outside the env"},
		{"endpoint outside the env", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a, labels: {kubernetes.io/service-name: a}}\naddressType: IPv4\n" +
			"endpoints: [{addresses: [203.0.113.7]}]\nports: [{port: 80}]\n", "EndpointSlice a: address 203.0.113.7 is outside the env"},
		{"cluster IP outside", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {clusterIP: 172.16.0.1, ports: [{port: 80}]}\n", "172.16.0.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects, err := manifest.Decode("a.yaml", 1, []byte(tc.manifest))
			require.NoError(t, err)
			assert.ErrorContains(t, e.Apply(t.Context(), objects), tc.want)
		})
	}
}

func TestHostNames(t *testing.T) {
	e := newEnv(t)
	_, err := e.Host("n3")
	assert.ErrorContains(t, err, `unknown host "n3": did you mean`)
	assert.Equal(t, []string{"n1", "s1", "c1", "n2", "s2", "c2", "ext", "other"}, e.Hosts())
	assert.Equal(t, "n2", e.Owner(netip.MustParseAddr("192.168.30.12")))
	assert.Equal(t, "n1", e.Owner(netip.MustParseAddr("10.244.1.1")), "the gateway of its pods")
	assert.Empty(t, e.Owner(netip.MustParseAddr("203.0.113.1")))
}

func TestRunReportsWhatAToolSaid(t *testing.T) {
	e := newEnv(t)
	n1, err := e.Host("n1")
	require.NoError(t, err)
	_, err = n1.Run(t.Context(), "sh", "-c", "echo no >&2; exit 3")
	var exit *lab.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 3, exit.Code)
	assert.Equal(t, `n1: ["sh" "-c" "echo no >&2; exit 3"]: exit status 3: no`, err.Error())
	_, err = n1.Run(t.Context(), "no-such-tool")
	assert.ErrorContains(t, err, "no-such-tool: not found in")
}
