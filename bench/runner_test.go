package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
	"kplab/lab/kubeproxy"
	"kplab/lab/machine"
	"kplab/netns"
)

// cached is a job with what the cache holds. It skips where that is no kube-proxy; `make test` obtains one first, and CI must not skip.
func cached(t *testing.T) lab.Job {
	t.Helper()
	root := os.Getenv("KPLAB_CACHE")
	if root == "" {
		var err error
		root, err = machine.DefaultCacheRoot()
		require.NoError(t, err)
	}
	for _, b := range kubeproxy.Cached(filepath.Join(root, "kube-proxy")) {
		if b.Version != lab.DefaultKubeProxy {
			continue
		}
		userland, err := machine.Cache{Root: root}.Userland(t.Context(), lab.DefaultUserland)
		require.NoError(t, err)
		return lab.Job{
			KubeProxies: map[string]string{b.Version: b.Path}, Root: userland, Accelerator: machine.AcceleratorHost,
		}
	}
	require.Empty(t, os.Getenv("CI"), "kube-proxy %s is not in the cache: make test obtains it", lab.DefaultKubeProxy)
	t.Skipf("kube-proxy %s is not in the cache: make test obtains it", lab.DefaultKubeProxy)
	return lab.Job{}
}

// measured runs settings here and returns what was measured, by name, with the recorder's folder.
func measured(t *testing.T, s Settings) (map[string][]lab.Measurement, string) {
	t.Helper()
	job := cached(t)
	job.Trials = s.Trials()
	m := lab.Machine{
		Release: "6.18.0", Features: machine.Features(), Tools: machine.Tools(t.Context(), job.Root),
		Unit: 5, // deadlines are for a machine that does other work too
	}
	dir := filepath.Join(t.TempDir(), "bench")
	recorder, err := NewRecorder(dir, Book{Settings: s})
	require.NoError(t, err)
	recorder.Begin(machine.KernelHost, lab.DefaultUserland)
	require.NoError(t, recorder.Add(lab.Event{Type: lab.EventReady, Machine: &m}))
	found := map[string][]lab.Measurement{}
	err = (&Runner{NewEnv: netns.New}).Run(t.Context(), job, m, func(e lab.Event) {
		assert.NoError(t, recorder.Add(e))
		if e.Type == lab.EventTrialEnd {
			assert.Empty(t, e.Message, e.Trial.String())
		}
		if e.Measurement != nil && e.Trial.Run > 0 {
			assert.Empty(t, e.Measurement.Error, e.Measurement.Name)
			found[e.Measurement.Name] = append(found[e.Measurement.Name], *e.Measurement)
		}
	})
	require.NoError(t, err)
	book, err := recorder.Close("")
	require.NoError(t, err)
	assert.Empty(t, book.Failures)
	return found, dir
}

func value(t *testing.T, m lab.Measurement, unit string) float64 {
	t.Helper()
	for _, v := range m.Values {
		if v.Unit == unit {
			return v.Value
		}
	}
	assert.Fail(t, "no such unit", "%s in %s: %v", unit, m.Name, m.Values)
	return 0
}

// settings are small: what is tested is that everything is measured, not how long it takes.
func settings(benches ...string) Settings {
	s := QuickSettings()
	s.Benches, s.Modes, s.Services, s.Endpoints, s.Count = benches, []lab.Mode{lab.IPTables, lab.NFTables}, []int{10}, []int{2}, 1
	s.Samples, s.Duration, s.Rates, s.ChurnPeriod = 50, 300*time.Millisecond, []int{50}, 10*time.Millisecond
	return s
}

func TestSyncAndConnect(t *testing.T) {
	found, dir := measured(t, settings(Sync, Connect))
	for _, mode := range []string{"iptables", "nftables"} {
		for event, times := range map[string]int{eventFirst: 1, eventAdd: repeatsOfSmall, eventChange: repeatsOfSmall, eventRemove: repeatsOfSmall, eventRestart: 1} {
			name := "Sync/event=" + event + "/services=10/endpoints=2/mode=" + mode
			require.Len(t, found[name], times, name)
			m := found[name][0]
			assert.Positive(t, value(t, m, "ms/programmed"), name)
			assert.Positive(t, value(t, m, "ms/sync"), name)
			assert.GreaterOrEqual(t, value(t, m, "syncs"), 1.0, name)
			assert.Positive(t, value(t, m, "kube-proxy-cpu-ms"), name)
			assert.GreaterOrEqual(t, value(t, m, "execs"), 1.0, "%s: nft or iptables-restore is run", name)
			if event == eventFirst || event == eventRestart {
				assert.Greater(t, value(t, m, "peak-bytes"), 10e6, name)
				assert.Greater(t, value(t, m, "rules"), 30.0, name)
				assert.Equal(t, mode == "nftables", value(t, m, "elements") >= 10, "%s: sets belong to nftables mode", name)
			}
		}
		for path, positions := range map[string][]string{"floor": {""}, "direct": {""}, "clusterip": positions, "nodeport": positions} {
			for _, position := range positions {
				name := "Connect/path=" + path
				if position != "" {
					name += "/position=" + position
				}
				name += "/services=10/mode=" + mode
				require.Len(t, found[name], 1, name)
				assert.Len(t, found[name][0].Samples, 50, name)
				assert.Positive(t, value(t, found[name][0], "us/connect-p50"), name)
			}
		}
	}
	figures, err := os.ReadFile(filepath.Join(dir, FiguresFile))
	require.NoError(t, err)
	assert.Contains(t, string(figures), "kube-proxy: "+lab.DefaultKubeProxy+"\n")
	assert.Contains(t, string(figures), "\nBenchmarkSync/event=first/services=10/endpoints=2/mode=nftables 1 ")
	var table strings.Builder
	require.NoError(t, Table(&table, dir))
	assert.Contains(t, table.String(), "event=add-service services=10 endpoints=2")
	assert.Contains(t, table.String(), "path=clusterip position=last services=10")
}

func TestChurnSwitchAndThroughput(t *testing.T) {
	s := settings(Churn, Switch, Throughput)
	s.FindRate = true
	found, dir := measured(t, s)
	for _, mode := range []string{"iptables", "nftables"} {
		limit := "ChurnLimit/services=10/endpoints=2/mode=" + mode
		require.Len(t, found[limit], 1, limit)
		assert.Positive(t, value(t, found[limit][0], "changes/s-kept-up"), "kube-proxy keeps up with fifty a second")
		name := "Churn/rate=50/services=10/endpoints=2/mode=" + mode
		require.Len(t, found[name], 1, name)
		assert.Positive(t, value(t, found[name][0], "ms/programmed-p50"))
		assert.Positive(t, value(t, found[name][0], "changes/s"))
		for _, path := range []string{"direct", "clusterip"} {
			for kind, unit := range map[string]string{"connections": "connections/s", "packets": "packets/s"} {
				name := "Throughput/kind=" + kind + "/path=" + path + "/services=10/mode=" + mode
				require.Len(t, found[name], 1, name)
				assert.Positive(t, value(t, found[name][0], unit), name)
			}
		}
	}
	for _, pair := range []string{"iptables-to-nftables", "nftables-to-iptables"} {
		for _, client := range []string{clientClusterIP, clientNodePort, clientEstablished} {
			name := "Switch/pair=" + pair + "/client=" + client + "/services=10"
			require.Len(t, found[name], 1, name)
			assert.Positive(t, value(t, found[name][0], "attempts"), name)
			if client != clientEstablished {
				assert.Positive(t, value(t, found[name][0], "ms/gap"), "%s: the new mode removes the other's rules before it has its own", name)
			}
		}
	}
	gaps, err := os.ReadFile(filepath.Join(dir, GapsFile))
	require.NoError(t, err)
	assert.Contains(t, string(gaps), "\niptables-to-nftables,10,1,clusterip,")
}
