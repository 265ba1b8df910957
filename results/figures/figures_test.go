package figures

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// folder writes files of unit-test values.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

const benchText = `kernel: 6.18.5
accelerator: host
kube-proxy: 1.37.2
Unit connections/x better=higher
BenchmarkSync/event=first/services=1000/endpoints=2/mode=nftables-2 1 12.5 ms/sync 300 rules
BenchmarkSync/event=first/services=1000/endpoints=2/mode=nftables-2 1 13.5 ms/sync 300 rules
kube-proxy: 1.38.0
BenchmarkSync/event=first/services=1000/endpoints=2/mode=nftables-2 1 14.5 ms/sync 300 rules
BenchmarkBuild 100 52000 ns/op
`

func TestRead(t *testing.T) {
	s, err := Read(folder(t, map[string]string{
		BenchFile:   benchText,
		SamplesFile: "bench,mode,run,index,value,unit\nConnect/services=10/mode=nftables,nftables,0,0,21.5,µs/connect\n",
		GapsFile:    "pair,services,run,client,at_ms,outcome\nipvs->nftables,10,0,c1,12.5,refused (rst)\n",
	}))
	require.NoError(t, err)
	require.Len(t, s.Lines, 4)
	l := s.Lines[1]
	assert.Equal(t, "Sync", l.Bench)
	assert.Equal(t, []Key{{"event", "first"}, {"services", "1000"}, {"endpoints", "2"}, {"mode", "nftables"}, {"gomaxprocs", "2"}}, l.Keys)
	assert.Equal(t, "1000", l.Key("services"))
	assert.Empty(t, l.Key("path"))
	assert.Equal(t, []Value{{"ms/sync", 13.5}, {"rules", 300}}, l.Values)
	assert.Equal(t, 1, l.Ordinal)
	assert.Equal(t, "1.37.2", l.Config[KubeProxyKey])
	assert.Equal(t, "kernel 6.18.5, host", l.Setting().String())
	assert.Equal(t, []Value{{"ns/op", 52000}}, s.Lines[3].Values, "units are as they were written")
	assert.Equal(t, []Sample{{Bench: "Connect/services=10/mode=nftables", Mode: "nftables", Run: "0", Value: 21.5, Unit: "µs/connect"}}, s.Samples)
	assert.Equal(t, []Gap{{"ipvs->nftables", 10, "0", "c1", 12.5, "refused (rst)"}}, s.Gaps)
	assert.Equal(t, 1, s.Better("connections/x"))
	assert.Equal(t, 1, s.Better("connections/s"))
	assert.Equal(t, -1, s.Better("ms/sync"))

	groups := s.Groups()
	require.Len(t, groups, 5, "two units with two versions, and one more")
	assert.Equal(t, []float64{12.5, 13.5}, groups[0].Values)
	assert.Equal(t, []float64{14.5}, groups[2].Values)
}

func TestReadMissing(t *testing.T) {
	s, err := Read(folder(t, map[string]string{BenchFile: benchText, BookFile: `{"schema": 1, "leftOut": ["ipvs mode is not measured"],
		"failures": [{"kernel": "host", "trial": "run 1", "name": "Sync/mode=ipvs", "reason": "is not synced"}], "interrupted": "by a signal"}`}))
	require.NoError(t, err)
	assert.Equal(t, []string{"ipvs mode is not measured", "Sync/mode=ipvs on host (run 1): is not synced", "the rest of them: by a signal"}, s.Missing)
	_, err = Read(folder(t, map[string]string{BenchFile: benchText, BookFile: "{"}))
	assert.ErrorContains(t, err, "bench.json: unexpected end of JSON input")
}

func TestReadBadInput(t *testing.T) {
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"nothing", nil, "holds no figures: it has no bench.txt"},
		{"no benchmark", map[string]string{BenchFile: "kernel: x\nPASS\n"}, "has no line of a benchmark"},
		{"broken line", map[string]string{BenchFile: "BenchmarkX 1 fast ns/op\n"}, "bench.txt:1: parsing measurement"},
		{"not finite", map[string]string{BenchFile: "BenchmarkX 1 NaN ns/op\n"}, "bench.txt:1: NaN ns/op is no figure"},
		{"no column", map[string]string{BenchFile: benchText, SamplesFile: "bench,mode,run,value\n"}, `samples.csv:1: it has no column "unit"`},
		{"no number", map[string]string{BenchFile: benchText, SamplesFile: "bench,mode,run,value,unit\nX,m,0,fast,ms\n"}, `samples.csv:2: value "fast" is no number`},
		{"fields", map[string]string{BenchFile: benchText, GapsFile: "pair,services,run,client,at_ms,outcome\na,1\n"}, "gaps.csv: record on line 2: wrong number of fields"},
		{"services", map[string]string{BenchFile: benchText, GapsFile: "pair,services,run,client,at_ms,outcome\na,many,0,c,1,ok\n"}, `gaps.csv:2: services "many" is no number`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Read(folder(t, tc.files))
			assert.ErrorContains(t, err, tc.want)
		})
	}
	_, err := Read(t.TempDir())
	assert.ErrorIs(t, err, ErrNone)
}

func TestSummarize(t *testing.T) {
	s := Summarize([]float64{3, 1, 2})
	assert.Equal(t, Summary{N: 3, Median: 2, Lo: 1, Hi: 3, Range: true}, s, "too few for an interval")
	s = Summarize([]float64{8, 1, 2, 3, 4, 5, 6, 7})
	assert.False(t, s.Range)
	assert.InDelta(t, 4.5, s.Median, 1e-9)
	assert.Less(t, s.Lo, s.Median)
	assert.Greater(t, s.Hi, s.Median)
	assert.Equal(t, Summary{N: 1, Median: 5, Lo: 5, Hi: 5, Range: true}, Summarize([]float64{5}))
}

func TestCompare(t *testing.T) {
	far := Compare([]float64{1, 2, 3, 4, 5}, []float64{11, 12, 13, 14, 15})
	assert.True(t, far.Significant)
	assert.InDelta(t, 0.0079, far.P, 0.0001)
	assert.False(t, Compare([]float64{1, 2, 3, 4, 5}, []float64{1.5, 2.5, 3.5, 0.5, 4.5}).Significant)
	few := Compare([]float64{1, 2}, []float64{11, 12})
	assert.False(t, few.Significant)
	assert.Error(t, few.Warning)
	assert.False(t, Compare([]float64{1, 1, 1, 1}, []float64{1, 1, 1, 1}).Significant)
}

func TestQuantiles(t *testing.T) {
	xs, shares := Quantiles([]float64{4, 1, 3, 2, 5}, 3)
	assert.Equal(t, []float64{1, 3, 5}, xs)
	assert.Equal(t, []float64{0.2, 0.6, 1}, shares)
	xs, shares = Quantiles([]float64{7}, 3)
	assert.Equal(t, []float64{7}, xs)
	assert.Equal(t, []float64{1}, shares)
	xs, _ = Quantiles(nil, 3)
	assert.Empty(t, xs)
}
