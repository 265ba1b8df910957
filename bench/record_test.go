package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
)

// recorded writes unit-test values as a machine's events would bring them, and returns the folder.
func recorded(t *testing.T) (string, Book) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "bench")
	r, err := NewRecorder(dir, Book{Settings: QuickSettings()})
	require.NoError(t, err)
	r.Begin("host", "debian-12")
	require.NoError(t, r.Add(lab.Event{Type: lab.EventReady, Machine: &lab.Machine{Release: "6.1.0", CPU: "A CPU", Cores: 2, Accelerator: "host", Tools: map[string]string{"nft": "1.0.6"}}}))
	for run, v := range map[int]float64{0: 99, 1: 10, 2: 12} {
		for _, mode := range []lab.Mode{lab.IPTables, lab.NFTables} {
			trial := lab.Trial{Mode: mode, KubeProxy: "1.37.2", Services: 10, Endpoints: 2, Run: run}
			m := lab.Measurement{
				Name: "Sync/event=first/services=10/endpoints=2/mode=" + string(mode), Iters: 1,
				Values: []lab.Value{{Value: v, Unit: "ms/programmed"}, {Value: 3, Unit: "ms/delivered"}},
			}
			require.NoError(t, r.Add(lab.Event{Type: lab.EventMeasurement, Trial: &trial, Measurement: &m}))
			require.NoError(t, r.Add(lab.Event{Type: lab.EventTrialEnd, Trial: &trial}))
		}
	}
	trial := lab.Trial{Mode: lab.IPTables, To: lab.NFTables, KubeProxy: "1.37.2", Services: 10, Run: 1}
	require.NoError(t, r.Add(lab.Event{Type: lab.EventMeasurement, Trial: &trial, Measurement: &lab.Measurement{
		Name: "Switch/pair=iptables-to-nftables/client=clusterip/services=10", Iters: 1, Samples: []float64{1.5, 2}, SampleUnit: "ms",
		Attempts: []lab.Attempt{{Client: "clusterip", AtMs: -5, Outcome: "ok"}, {Client: "clusterip", AtMs: 0.125, Outcome: "timeout"}},
	}}))
	require.NoError(t, r.Add(lab.Event{Type: lab.EventMeasurement, Trial: &trial, Measurement: &lab.Measurement{Name: "Switch/x", Error: "it does not serve"}}))
	require.NoError(t, r.Add(lab.Event{Type: lab.EventTrialEnd, Trial: &trial, Message: "it does not serve"}))
	book, err := r.Close("interrupted by signal: interrupt")
	require.NoError(t, err)
	return dir, book
}

func TestRecorderWritesWhatWasMeasured(t *testing.T) {
	dir, book := recorded(t)
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(text)
	}
	figures := read(FiguresFile)
	for _, line := range []string{"kernel: 6.1.0", "kube-proxy: 1.37.2", "nft: 1.0.6", "cpu: A CPU", "accelerator: host", "substrate: netns"} {
		assert.Contains(t, figures, line+"\n")
	}
	assert.Equal(t, 4, strings.Count(figures, "BenchmarkSync/event=first/services=10/endpoints=2/mode="), "a line a run, and none of the warm-up")
	assert.NotContains(t, figures, "99 ms/programmed")
	assert.Equal(t, "pair,services,run,client,at_ms,outcome\niptables-to-nftables,10,1,clusterip,-5,ok\niptables-to-nftables,10,1,clusterip,0.125,timeout\n", read(GapsFile))
	assert.Equal(t, `bench,mode,run,index,value,unit
Switch/pair=iptables-to-nftables/client=clusterip/services=10,iptables-to-nftables,1,0,1.5,ms
Switch/pair=iptables-to-nftables/client=clusterip/services=10,iptables-to-nftables,1,1,2,ms
`, read(SamplesFile))
	var stored Book
	require.NoError(t, json.Unmarshal([]byte(read(SettingsFile)), &stored))
	assert.Equal(t, book, stored)
	assert.Equal(t, Schema, stored.Schema)
	assert.Equal(t, "interrupted by signal: interrupt", stored.Interrupted)
	require.Len(t, stored.Machines, 1)
	assert.Equal(t, 5, stored.Machines[0].Trials)
	assert.Len(t, stored.Machines[0].Calibrations, 4)
	require.Len(t, stored.Failures, 1, "what ended a trial is told once")
	assert.Equal(t, "it does not serve", stored.Failures[0].Reason)

	_, err := NewRecorder(dir, Book{})
	assert.ErrorContains(t, err, "already holds a benchmark: choose another folder")
}

func TestTable(t *testing.T) {
	dir, book := recorded(t)
	// What a kill leaves: the beginning of a line.
	f, err := os.OpenFile(filepath.Join(dir, FiguresFile), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString("BenchmarkSync/event=fir")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	var out strings.Builder
	require.NoError(t, Table(&out, dir))
	assert.Contains(t, out.String(), "kernel 6.1.0 (host), kube-proxy 1.37.2, nft 1.0.6")
	assert.Regexp(t, `event=first services=10 endpoints=2 +11 \[10, 12\] +11 \[10, 12\] +1x \(p=1.000 n=2\)`, out.String())
	out.Reset()
	require.NoError(t, Costs(&out, book))
	assert.Contains(t, out.String(), "API server: 3 ms until the last byte")
}
