package usercluster

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"kplab/lab"
)

func TestChooseNodes(t *testing.T) {
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	notReady := func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }
	windows := func(n *corev1.Node) { n.Status.NodeInfo.OperatingSystem = "windows" }
	foreign := func(n *corev1.Node) { n.Status.NodeInfo.Architecture = "s390x" }
	tainted := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
	}
	for _, tt := range []struct {
		name   string
		nodes  []kruntime.Object
		n1, n2 string
	}{
		{"workers before control planes", []kruntime.Object{aNode("a", controls), aNode("c"), aNode("b")}, "b", "c"},
		{"a control plane where there is no other", []kruntime.Object{aNode("a", controls), aNode("b")}, "b", "a"},
		{"of one kernel if there are two", []kruntime.Object{aNode("a"), aNode("b", kernel("6.12.0")), aNode("c")}, "a", "c"},
		{"of two kernels if need be", []kruntime.Object{aNode("a"), aNode("b", kernel("6.12.0"))}, "a", "b"},
		{"not those that cannot be used", []kruntime.Object{aNode("a", cordoned), aNode("b", notReady), aNode("c", windows), aNode("d", foreign), aNode("e", tainted), aNode("f"), aNode("g")}, "f", "g"},
	} {
		c, _ := cluster(t, tt.nodes...)
		got, err := c.chooseNodes(t.Context())
		require.NoError(t, err, tt.name)
		assert.Equal(t, [2]string{tt.n1, tt.n2}, [2]string{got[0].Name, got[1].Name}, tt.name)
		assert.Equal(t, "1.36.3", got[0].Kubelet)
	}

	c, _ := cluster(t, aNode("a"), aNode("b", cordoned), aNode("c", notReady), aNode("d", windows), aNode("e", foreign), aNode("f", tainted))
	_, err := c.chooseNodes(t.Context())
	for _, part := range []string{"context staging: 2 Ready, schedulable Linux nodes", "1 of 6 are", "b is cordoned", "c is not Ready", "d runs windows", "e is s390x", "f is tainted (dedicated:NoSchedule)"} {
		assert.ErrorContains(t, err, part)
	}
}

func TestForbiddenNamesVerbAndResource(t *testing.T) {
	c, client := cluster(t)
	client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, kruntime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New(`User "dev" cannot list resource "nodes" in API group "" at the cluster scope`))
	})
	_, err := c.Survey(t.Context())
	assert.ErrorContains(t, err, "nodes of context staging: ")
	assert.ErrorContains(t, err, `cannot list resource "nodes"`)
	assert.True(t, apierrors.IsForbidden(err))
}

func TestCheckAccess(t *testing.T) {
	c, client := cluster(t)
	allow(client)
	require.NoError(t, c.CheckAccess(t.Context(), "kplab-abc"))
	for _, a := range client.Actions() {
		assert.Equal(t, "selfsubjectaccessreviews", a.GetResource().Resource, "nothing is done to find out")
	}
	c, client = cluster(t)
	allow(client, "create namespaces", "create pods/exec", "list endpointslices.discovery.k8s.io")
	err := c.CheckAccess(t.Context(), "kplab-abc")
	assert.ErrorContains(t, err, "the user of context staging may not create namespaces, create pods/exec, list endpointslices.discovery.k8s.io: ")
}

func config(mode string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"},
		Data:       map[string]string{"config.conf": "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: " + mode + "\n"},
	}
}

const image = "registry.k8s.io/kube-proxy:v1.36.3"

func TestServiceProxy(t *testing.T) {
	for _, tt := range []struct {
		name    string
		objects []kruntime.Object
		asks    string // what /proxyMode answers by way of the API server
		logs    string
		want    ServiceProxy
	}{
		{"kube-proxy says", []kruntime.Object{kubeProxy("a", image), kubeProxy("b", image), config("iptables")}, "nftables", "", ServiceProxy{Mode: lab.NFTables, Source: "its /proxyMode", Version: "1.36.3"}},
		{"its ConfigMap says", []kruntime.Object{kubeProxy("a", image), kubeProxy("b", image), config("ipvs")}, "", "", ServiceProxy{Mode: lab.IPVS, Source: "its ConfigMap", Version: "1.36.3"}},
		{"no mode is iptables", []kruntime.Object{kubeProxy("a", image), kubeProxy("b", image), config(`""`)}, "", "", ServiceProxy{Mode: lab.IPTables, Source: "its ConfigMap", Version: "1.36.3"}},
		{"no mode is nftables from 1.40", []kruntime.Object{kubeProxy("a", "kube-proxy:v1.40.0"), kubeProxy("b", "kube-proxy:v1.40.0"), config(`""`)}, "", "", ServiceProxy{Mode: lab.NFTables, Source: "its ConfigMap", Version: "1.40.0"}},
		{"its log says", []kruntime.Object{kubeProxy("a", image), kubeProxy("b", image)}, "", `I1 server_linux.go:1] "Using nftables Proxier"`, ServiceProxy{Mode: lab.NFTables, Source: "its log", Version: "1.36.3"}},
		{"its log, whatever its ConfigMap has become", []kruntime.Object{kubeProxy("a", image), kubeProxy("b", image), config("nftables")}, "", `I1 server_linux.go:1] "Using ipvs Proxier"`, ServiceProxy{Mode: lab.IPVS, Source: "its log", Version: "1.36.3"}},
		{"nobody says", []kruntime.Object{kubeProxy("a", "kube-proxy@sha256:00"), kubeProxy("b", "kube-proxy@sha256:00")}, "", "", ServiceProxy{Version: "1.36.3"}},
		{"two versions", []kruntime.Object{kubeProxy("a", image), kubeProxy("b", "kube-proxy:v1.35.0"), config("ipvs")}, "", "", ServiceProxy{Mode: lab.IPVS, Source: "its ConfigMap", Version: "1.36.3", Note: "kube-proxy is 1.36.3 on a and 1.35.0 on b"}},
		{"cilium", []kruntime.Object{aPod("kube-system", "cilium-1", "a", "quay.io/cilium/cilium:v1.18.2@sha256:00", map[string]string{"k8s-app": "cilium"})}, "", "", ServiceProxy{Mode: lab.NoKubeProxy, Source: "no pod of kube-proxy is on the nodes", Version: "cilium-1.18.2"}},
		{"calico", []kruntime.Object{aPod("calico-system", "calico-node-1", "a", "calico/node:v3.30.0", map[string]string{"k8s-app": "calico-node"})}, "", "", ServiceProxy{Mode: lab.NoKubeProxy, Source: "no pod of kube-proxy is on the nodes", Version: "calico-3.30.0"}},
		{"nothing known", nil, "", "", ServiceProxy{Mode: lab.NoKubeProxy, Source: "no pod of kube-proxy is on the nodes", Version: "unknown"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, client := cluster(t, append(tt.objects, aNode("a"), aNode("b"))...)
			if tt.asks != "" {
				client.PrependProxyReactor("pods", func(a clienttesting.Action) (bool, rest.ResponseWrapper, error) {
					assert.Equal(t, "kube-proxy-a", a.(clienttesting.ProxyGetAction).GetName())
					return true, says(tt.asks), nil
				})
			}
			client.PrependReactor("get", "pods", func(a clienttesting.Action) (bool, kruntime.Object, error) {
				return a.GetSubresource() == "log", &kruntime.Unknown{Raw: []byte(tt.logs)}, nil
			})
			s, err := c.Survey(t.Context())
			require.NoError(t, err)
			s.Proxy.pods = [2]string{}
			assert.Equal(t, tt.want, s.Proxy)
		})
	}
}

// says is an answer by way of the API server.
type says string

func (s says) DoRaw(context.Context) ([]byte, error) { return []byte(s), nil }
func (s says) Stream(context.Context) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(string(s))), nil
}

func TestKubeProxyOnOneNodeOnly(t *testing.T) {
	c, _ := cluster(t, aNode("a"), aNode("b"), kubeProxy("b", image))
	_, err := c.Survey(t.Context())
	assert.ErrorContains(t, err, "kube-proxy runs on node b (pod kube-proxy-b) and not on a")
}

func TestPodsOfKubeSystemThatMayNotBeListed(t *testing.T) {
	c, client := cluster(t, aNode("a"), aNode("b"))
	client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, kruntime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	})
	s, err := c.Survey(t.Context())
	require.NoError(t, err)
	assert.Empty(t, s.Proxy.Mode, "it is asked on the nodes")
	assert.Contains(t, s.Proxy.Note, "cannot be listed")
}

func TestOutline(t *testing.T) {
	c, _ := cluster(t, aNode("a"), aNode("b", kernel("6.12.0")), kubeProxy("a", image), kubeProxy("b", image), config("ipvs"))
	s, err := c.Survey(t.Context())
	require.NoError(t, err)
	var b bytes.Buffer
	Outline{Cluster: c, Survey: s, Namespace: "kplab-abc", Image: "busybox:1", Scenarios: 6, Left: 35, Services: 3, NodePorts: 4}.Write(&b)
	assert.Equal(t, `Cluster of context staging (https://192.0.2.1:6443)
  n1 is node a, kernel 6.1.0-57, kubelet 1.36.3
  n2 is node b, kernel 6.12.0, kubelet 1.36.3
  The nodes' kernels differ: results are under that of n1.
  kube-proxy 1.36.3 in ipvs mode, as its ConfigMap says.
Will be created, and removed at the end:
  namespace kplab-abc, labelled kplab/run, in which Pod Security admits the pods below
  6 pods of image busybox:1: s1 and c1 on n1, s2 and c2 on n2, and one on each in the node's own network (hostNetwork), all with NET_RAW
  up to 4 Services at a time, up to 4 node ports among them, for 6 scenarios
Nothing else in the cluster is changed.
35 scenarios act on nodes or kube-proxy and are not run on a cluster that already exists.
`, b.String())
}

func TestConnect(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("KUBECONFIG", filepath.Join(dir, "none"))
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	good := write("good", `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://192.0.2.1:6443"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: staging, context: {cluster: c, user: u}}, {name: test, context: {cluster: c, user: u}}]
`)
	c, err := Connect(good, "staging")
	require.NoError(t, err)
	assert.Equal(t, "https://192.0.2.1:6443", c.Server)
	assert.Equal(t, "--kubeconfig "+good+" --context staging", c.flags())

	for _, tt := range []struct{ name, file, context, want string }{
		{"none at all", "", "", "no cluster is known: "},
		{"no such file", filepath.Join(dir, "absent"), "", "no such file"},
		{"no YAML", write("bad", "]"), "", "kubeconfig: "},
		{"no current context", good, "", "has no current context: --context names one of staging, test"},
		{"unknown context", good, "stagin", `unknown context "stagin": did you mean "staging"?`},
	} {
		_, err := Connect(tt.file, tt.context)
		assert.ErrorContains(t, err, tt.want, tt.name)
	}
}

func TestRemoveLeftovers(t *testing.T) {
	space := func(name string, labels map[string]string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	c, client := cluster(t, space("kplab-abc", map[string]string{runLabel: "abc"}), space("kplab-mine", nil), space("copy", map[string]string{runLabel: "abc"}), space("default", nil))
	removed, err := c.RemoveLeftovers(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"kplab-abc"}, removed)
	left, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Len(t, left.Items, 3)
}

func TestRemovalThatFailsSaysWhatToDo(t *testing.T) {
	c, client := cluster(t)
	require.NoError(t, c.removeNamespace(t.Context(), "kplab-abc"), "it is gone")
	client.PrependReactor("delete", "namespaces", func(clienttesting.Action) (bool, kruntime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	assert.ErrorContains(t, c.removeNamespace(t.Context(), "kplab-abc"), "connection refused; kplab clean --context staging tries again")
}
