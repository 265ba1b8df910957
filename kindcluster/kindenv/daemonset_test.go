package kindenv

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"kplab/lab/topology"
)

const kubeadmConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
conntrack:
  maxPerCore: 0
  tcpBeLiberal: true
`

// cluster is a fixture over objects alone: nodes and kube-proxy as kubeadm leaves them.
func cluster(t *testing.T) *Fixture {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "kube-proxy", Namespace: proxyNamespace}
	ds := &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{
		UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType},
		Template:       corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "kube-proxy", Image: "as-it-was"}}}},
	}}
	cm := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{configKey: kubeadmConfig, "kubeconfig.conf": "the way to the API server"}}
	f := &Fixture{
		topology: topology.Standard(), nodeNames: map[string]string{"n1": "worker", "n2": "worker2"},
		daemonSet: ds.DeepCopy(), configMap: cm.DeepCopy(),
		client: fake.NewClientset(ds, cm,
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: corev1.NodeSpec{Unschedulable: true}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker2"}},
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "c1", Namespace: corev1.NamespaceDefault}},
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "node-debugger-worker-x", Namespace: corev1.NamespaceDefault}},
		),
	}
	return f
}

func TestConfigureEditsOnlyTheFieldsNamed(t *testing.T) {
	f := cluster(t)
	c := operated{&env{Fixture: f}}
	require.NoError(t, c.Configure(t.Context(), map[string]string{"mode": "nftables", "conntrack.tcpBeLiberal": "null", "featureGates.KubeProxyIPVS": "false"}))
	cm, err := f.client.CoreV1().ConfigMaps(proxyNamespace).Get(t.Context(), "kube-proxy", metav1.GetOptions{})
	require.NoError(t, err)
	assert.YAMLEq(t, `{apiVersion: kubeproxy.config.k8s.io/v1alpha1, kind: KubeProxyConfiguration, mode: nftables, conntrack: {maxPerCore: 0}, featureGates: {KubeProxyIPVS: false}}`, cm.Data[configKey])
	assert.Equal(t, "the way to the API server", cm.Data["kubeconfig.conf"])

	err = c.Configure(t.Context(), map[string]string{"mod": "nftables"})
	assert.ErrorContains(t, err, `ConfigMap kube-proxy: KubeProxyConfiguration has no field "mod": did you mean "mode"?`)
}

func TestTakeBackUndoesAHandOver(t *testing.T) {
	ctx, f := t.Context(), cluster(t)
	f.handedOver = true
	require.NoError(t, operated{&env{Fixture: f}}.Configure(ctx, map[string]string{"mode": "nftables"}))
	sets := f.client.AppsV1().DaemonSets(proxyNamespace)
	ds, err := sets.Get(ctx, "kube-proxy", metav1.GetOptions{})
	require.NoError(t, err)
	ds.Spec.UpdateStrategy.Type, ds.Spec.Template.Spec.Containers[0].Image = appsv1.OnDeleteDaemonSetStrategyType, "another"
	_, err = sets.Update(ctx, ds, metav1.UpdateOptions{})
	require.NoError(t, err)

	require.NoError(t, f.takeBack(ctx))
	assert.False(t, f.handedOver)
	cm, err := f.client.CoreV1().ConfigMaps(proxyNamespace).Get(ctx, "kube-proxy", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, kubeadmConfig, cm.Data[configKey])
	ds, err = sets.Get(ctx, "kube-proxy", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, f.daemonSet.Spec, ds.Spec)
	for _, name := range []string{"worker", "worker2"} {
		n, err := f.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		require.NoError(t, err)
		assert.False(t, n.Spec.Unschedulable, name)
		assert.Contains(t, n.Labels, scriptedLabel, name)
	}
	pods, err := f.client.CoreV1().Pods(corev1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	assert.Equal(t, "c1", pods.Items[0].Name, "the fixture's own pods stay")
}
