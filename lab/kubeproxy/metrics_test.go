package kubeproxy

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recorded is a scrape of a real kube-proxy 1.37.2 in iptables mode while a change is pending, without the metrics of its libraries.
func recorded(t *testing.T) *Metrics {
	text, err := os.ReadFile("testdata/metrics-1.37.2-iptables.prom")
	require.NoError(t, err)
	m, err := ParseMetrics(string(text))
	require.NoError(t, err)
	return m
}

func TestMetricsSum(t *testing.T) {
	m := recorded(t)
	for _, tt := range []struct {
		what    string
		name    string
		labels  map[string]string
		want    float64
		present bool
	}{
		{"counter", "kubeproxy_sync_proxy_rules_service_changes_total", nil, 12, true},
		{"gauge of one family", "kubeproxy_sync_proxy_rules_last_timestamp_seconds", map[string]string{"ip_family": "IPv6"}, 1.79600571969624e+09, true},
		{"histogram's count, all families", "kubeproxy_sync_proxy_rules_duration_seconds_count", nil, 8, true},
		{"two labels", "kubeproxy_sync_proxy_rules_iptables_total", map[string]string{"table": "nat", "ip_family": "IPv4"}, 20, true},
		{"metric without such a sample", "kubeproxy_sync_proxy_rules_iptables_total", map[string]string{"table": "mangle"}, 0, true},
		{"label that the metric does not have", "kubeproxy_sync_proxy_rules_service_changes_total", map[string]string{"ip_family": "IPv4"}, 0, true},
		{"metric of another mode", "kubeproxy_sync_proxy_rules_nftables_sync_failures_total", nil, 0, false},
		{"no metric", "kubeproxy_nonsense_sum", nil, 0, false},
	} {
		t.Run(tt.what, func(t *testing.T) {
			got, present := m.Sum(tt.name, tt.labels)
			assert.Equal(t, tt.present, present)
			assert.InDelta(t, tt.want, got, 1e-3)
		})
	}
	names := m.Names()
	assert.IsIncreasing(t, names)
	assert.Contains(t, names, "kubeproxy_sync_proxy_rules_duration_seconds")
	assert.Contains(t, m.Text(), "# TYPE kubeproxy_")
}

func TestParseMetricsError(t *testing.T) {
	_, err := ParseMetrics("404 page not found\n")
	require.ErrorContains(t, err, "kube-proxy's metrics")
}
