package kubeproxy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"kplab/lab"
)

// configOf writes a configuration and reads it strictly, as kube-proxy does.
func configOf(t *testing.T, c Config) v1alpha1.KubeProxyConfiguration {
	text, err := c.YAML()
	require.NoError(t, err)
	var k v1alpha1.KubeProxyConfiguration
	require.NoError(t, yaml.UnmarshalStrict(text, &k), "%s", text)
	return k
}

func TestConfigDefaults(t *testing.T) {
	for _, mode := range lab.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			k := configOf(t, Config{Mode: mode, NodeName: "n1", ClusterCIDR: "10.244.0.0/16,fd00:10:244::/56", Kubeconfig: "/run/kplab/kubeconfig"})
			assert.Equal(t, "kubeproxy.config.k8s.io/v1alpha1", k.APIVersion)
			assert.Equal(t, "KubeProxyConfiguration", k.Kind)
			assert.Equal(t, string(mode), string(k.Mode))
			assert.Equal(t, "n1", k.HostnameOverride)
			assert.Equal(t, "10.244.0.0/16,fd00:10:244::/56", k.ClusterCIDR)
			assert.Equal(t, "/run/kplab/kubeconfig", k.ClientConnection.Kubeconfig)
			assert.Equal(t, "127.0.0.1:10249", k.MetricsBindAddress)
			assert.Zero(t, *k.Conntrack.MaxPerCore)
			assert.Zero(t, *k.Conntrack.Min)
			assert.Zero(t, k.Conntrack.TCPEstablishedTimeout.Duration)
			assert.Positive(t, k.IPTables.MinSyncPeriod.Duration)
			assert.Positive(t, k.NFTables.MinSyncPeriod.Duration)
			assert.Zero(t, k.IPTables.SyncPeriod.Duration)
			assert.EqualValues(t, 2, k.Logging.Verbosity)
			assert.Equal(t, mode == lab.IPVS, len(k.Logging.VModule) > 0)
			assert.Nil(t, k.NodePortAddresses)
		})
	}
}

func TestConfigSet(t *testing.T) {
	for _, tt := range []struct {
		path, value string
		got         func(v1alpha1.KubeProxyConfiguration) any
		want        any
	}{
		{"ipvs.scheduler", "lc", func(k v1alpha1.KubeProxyConfiguration) any { return k.IPVS.Scheduler }, "lc"},
		{"ipvs.strictARP", "true", func(k v1alpha1.KubeProxyConfiguration) any { return k.IPVS.StrictARP }, true},
		{"ipvs.excludeCIDRs", "192.0.2.0/24", func(k v1alpha1.KubeProxyConfiguration) any { return k.IPVS.ExcludeCIDRs }, []string{"192.0.2.0/24"}},
		{"featureGates.KubeProxyIPVS", "false", func(k v1alpha1.KubeProxyConfiguration) any { return k.FeatureGates }, map[string]bool{"KubeProxyIPVS": false}},
		{"conntrack.tcpBeLiberal", "true", func(k v1alpha1.KubeProxyConfiguration) any { return k.Conntrack.TCPBeLiberal }, true},
		{"conntrack.maxPerCore", "null", func(k v1alpha1.KubeProxyConfiguration) any { return k.Conntrack.MaxPerCore }, (*int32)(nil)},
		{"nodePortAddresses", "primary,localhost", func(k v1alpha1.KubeProxyConfiguration) any { return k.NodePortAddresses }, []string{"primary", "localhost"}},
		{"nodePortAddresses", `["0.0.0.0/0", "::/0"]`, func(k v1alpha1.KubeProxyConfiguration) any { return k.NodePortAddresses }, []string{"0.0.0.0/0", "::/0"}},
		{"nodePortAddresses", "0.0.0.0/0,::/0", func(k v1alpha1.KubeProxyConfiguration) any { return k.NodePortAddresses }, []string{"0.0.0.0/0", "::/0"}},
		{"nodePortAddresses", "", func(k v1alpha1.KubeProxyConfiguration) any { return len(k.NodePortAddresses) }, 0},
		{"mode", "", func(k v1alpha1.KubeProxyConfiguration) any { return string(k.Mode) }, ""},
		{"mode", "bogus", func(k v1alpha1.KubeProxyConfiguration) any { return string(k.Mode) }, "bogus"},
		{"showHiddenMetricsForVersion", "1.36", func(k v1alpha1.KubeProxyConfiguration) any { return k.ShowHiddenMetricsForVersion }, "1.36"},
		{"healthzBindAddress", "[::1]:10256", func(k v1alpha1.KubeProxyConfiguration) any { return k.HealthzBindAddress }, "[::1]:10256"},
		{"iptables.minSyncPeriod", "1s", func(k v1alpha1.KubeProxyConfiguration) any { return k.IPTables.MinSyncPeriod.Duration.String() }, "1s"},
		{"iptables.localhostNodePorts", "false", func(k v1alpha1.KubeProxyConfiguration) any { return *k.IPTables.LocalhostNodePorts }, false},
		{"clientConnection.qps", "50", func(k v1alpha1.KubeProxyConfiguration) any { return k.ClientConnection.QPS }, float32(50)},
		{"logging.verbosity", "5", func(k v1alpha1.KubeProxyConfiguration) any { return uint32(k.Logging.Verbosity) }, uint32(5)},
		{"oomScoreAdj", "-5", func(k v1alpha1.KubeProxyConfiguration) any { return *k.OOMScoreAdj }, int32(-5)},
	} {
		t.Run(tt.path+"="+tt.value, func(t *testing.T) {
			assert.Equal(t, tt.want, tt.got(configOf(t, Config{Mode: lab.NFTables, Set: map[string]string{tt.path: tt.value}})))
		})
	}
}

func TestConfigSetErrors(t *testing.T) {
	for _, tt := range []struct{ path, value, want string }{
		{"nodePortAdresses", "primary", `no field "nodePortAdresses": did you mean "nodePortAddresses"?`},
		{"ipvs.strictArp", "true", `no field "ipvs.strictArp": did you mean "ipvs.strictARP"?`},
		{"ipvs.scheduler.name", "lc", "ipvs.scheduler has no fields"},
		{"kind", "Pod", `no field "kind"`},
		{"", "x", `no field ""`},
		{"featureGates.", "true", "no field"},
		{"ipvs.strictARP", "maybe", "expected true or false"},
		{"oomScoreAdj", "low", "expected a number"},
		{"iptables.syncPeriod", "30", "expected a duration such as"},
		{"featureGates.X", "1", "expected true or false"},
		{"conntrack", "{nonsense: 1}", "unknown field"},
	} {
		t.Run(tt.path+"="+tt.value, func(t *testing.T) {
			_, err := Config{Set: map[string]string{tt.path: tt.value}}.YAML()
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestMetricsAddress(t *testing.T) {
	for set, want := range map[string]string{
		"127.0.0.1:10249": "127.0.0.1:10249",
		"0.0.0.0:9999":    "127.0.0.1:9999",
		"[::1]:10249":     "[::1]:10249",
		"nonsense":        defaultMetricsAddress,
	} {
		tree, err := Config{Set: map[string]string{"metricsBindAddress": set}}.fields()
		require.NoError(t, err)
		assert.Equal(t, want, metricsAddress(tree), set)
	}
}

func TestKubeconfig(t *testing.T) {
	text, err := kubeconfig("http://127.0.0.1:6443")
	require.NoError(t, err)
	assert.Contains(t, string(text), "server: http://127.0.0.1:6443")
	assert.Contains(t, string(text), "current-context: kplab")
}
