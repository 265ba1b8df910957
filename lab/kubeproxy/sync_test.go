package kubeproxy

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab/apiserver"
)

var dual = []string{"IPv4", "IPv6"}

func TestAddressed(t *testing.T) {
	n := apiserver.Changes{
		Services: 3, EndpointSlices: 7, IPv4EndpointSlices: 5, IPv6EndpointSlices: 2,
		OtherProxyIPv4EndpointSlices: 10, OtherProxyIPv6EndpointSlices: 20,
	}
	for _, tt := range []struct {
		what     string
		families []string
		minor    int
		want     counts
	}{
		{"both families", dual, 35, counts{6, 7}},
		{"IPv4 only", dual[:1], 35, counts{3, 5}},
		{"IPv6 only", dual[1:], 33, counts{3, 2}},
		{"1.36 is sent other proxies' slices too", dual, 36, counts{6, 37}},
	} {
		t.Run(tt.what, func(t *testing.T) {
			assert.Equal(t, tt.want, addressed(n, tt.families, tt.minor))
		})
	}
}

func TestStateMissing(t *testing.T) {
	good := state{seen: counts{6, 4}, family: [2]familyState{{synced: 100.2, queued: 100.1}, {synced: 100.3, queued: 100.1}}}
	with := func(change func(*state)) state { s := good; change(&s); return s }
	for _, tt := range []struct {
		what  string
		state state
		want  counts
		says  string
	}{
		{"synced", good, counts{6, 4}, ""},
		{"has seen more, after a relist", good, counts{4, 4}, ""},
		{"a family never synced", with(func(s *state) { s.family[1] = familyState{queued: 99} }), counts{6, 4}, "no IPv6 sync yet"},
		{"queued after its last sync", with(func(s *state) { s.family[0].queued = 100.25 }), counts{6, 4}, "a queued IPv4 sync is not done"},
		{"Services on their way", good, counts{8, 4}, "it has seen 6 of 8 Service changes"},
		{"slices on their way", good, counts{6, 5}, "it has seen 4 of 5 EndpointSlice changes"},
		{"pending", with(func(s *state) { s.pending = counts{1, 2} }), counts{6, 4}, "1 Service and 2 EndpointSlice changes are pending"},
		{"nothing yet", state{}, counts{2, 1}, "no IPv4 sync yet, no IPv6 sync yet, it has seen 0 of 2 Service changes, it has seen 0 of 1 EndpointSlice changes"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			assert.Equal(t, tt.says, tt.state.missing(tt.want, dual))
		})
	}
}

// The real kube-proxy of the recording had just been sent a change.
func TestReadState(t *testing.T) {
	s := readState(recorded(t), dual)
	assert.Equal(t, counts{12, 6}, s.seen)
	assert.Equal(t, counts{0, 1}, s.pending)
	assert.InDelta(t, 1796005720.526761, s.family[0].synced, 1e-6)
	assert.InDelta(t, 0.59, s.longest.Seconds(), 0.01)
	assert.Equal(t, "a queued IPv4 sync is not done, 0 Service and 1 EndpointSlice changes are pending", s.missing(counts{12, 6}, dual))
}

func recordedLog(t *testing.T) string {
	log, err := os.ReadFile("testdata/log-1.37.2-iptables.log")
	require.NoError(t, err)
	return string(log)
}

var recordedAt = time.Date(2026, 11, 30, 2, 28, 41, 0, time.UTC)

func TestSyncHistory(t *testing.T) {
	log := recordedLog(t)
	assert.Equal(t, dual, familiesIn(log))
	whole, pieces := new(syncHistory), new(syncHistory)
	whole.read(log, recordedAt)
	for len(log) > 0 { // as a reader of a growing file sees it
		n := min(len(log), 77)
		pieces.read(log[:n], recordedAt)
		log = log[n:]
	}
	assert.Equal(t, whole, pieces)
	assert.Equal(t, 8, whole.syncs)
	assert.Len(t, whole.spans["IPv4"], 7)
	require.Len(t, whole.spans["IPv6"], 1)
	assert.InDelta(t, 1796005719.696286, whole.spans["IPv6"][0].end, 1e-6)
	assert.InDelta(t, 0.58994576, whole.spans["IPv6"][0].elapsed, 1e-6)
	assert.Equal(t, map[string]bool{"IPv4": true, "IPv6": false}, whole.running)
	assert.False(t, whole.settled(1796005799, dual))
	assert.True(t, whole.settled(1796005719.7, dual[1:]))
	assert.False(t, whole.settled(1796005719.6, dual[1:]))

	// The last IPv4 sync that ended began between the first two.
	const earliest, latest, ended = 1796005720.450087, 1796005720.450190, 1796005720.526761
	s := readState(recorded(t), dual)
	for _, tt := range []struct {
		what           string
		synced, queued float64
		want           coverage
	}{
		{"queued before the last sync began", ended, earliest - 0.000020, covered},
		{"queued about when it began", ended, latest - 0.000020, ambiguous},
		{"queued while it was at work", ended, latest + 0.000020, uncovered},
		{"queued after it", ended, ended + 0.1, uncovered},
		{"the sync is not in the log", ended + 0.2, earliest, unlogged},
	} {
		t.Run(tt.what, func(t *testing.T) {
			s.family[0] = familyState{tt.synced, tt.queued}
			assert.Equal(t, tt.want, whole.covers(s, dual))
		})
	}
}

func TestSyncHistoryKeepsLittle(t *testing.T) {
	h := new(syncHistory)
	h.read(strings.Repeat(`I1130 02:28:40.526865      13 proxier.go:649] "SyncProxyRules complete" ipFamily="IPv4" elapsed="76.674303ms"`+"\n", 200), recordedAt)
	assert.Equal(t, 200, h.syncs)
	assert.Len(t, h.spans["IPv4"], syncsKept)
}

func TestFamiliesIn(t *testing.T) {
	for log, want := range map[string][]string{
		"": nil,
		`I1130 02:28:38.233506      13 server.go:265] "kube-proxy running in dual-stack mode" primary ipFamily="IPv4"`: dual,
		`I1130 02:28:38.233506      13 server.go:267] "kube-proxy running in single-stack mode" ipFamily="IPv4"`:       dual[:1],
		`I1130 02:28:38.233506      13 server.go:267] "kube-proxy running in single-stack mode" ipFamily="IPv6"`:       dual[1:],
	} {
		assert.Equal(t, want, familiesIn(log), "%q", log)
	}
}

// counter is an API server that tells what the test sets.
type counter struct{ existing, changes apiserver.Changes }

func (c *counter) Existing() apiserver.Changes { return c.existing }
func (c *counter) Changes() apiserver.Changes  { return c.changes }

func slicesChanged(n int64) apiserver.Changes {
	return apiserver.Changes{Services: 4, EndpointSlices: n, IPv4EndpointSlices: n}
}

// TestTracker steps through recorded and altered states of one process.
func TestTracker(t *testing.T) {
	const never = time.Hour // a period that does not end
	lastQueued, settled := "1.7960057206230927e+09", "1.7960057204500000e+09"
	scrape := func(t *testing.T, replace ...string) *Metrics {
		text := strings.NewReplacer(append(replace, "endpoint_changes_pending 1", "endpoint_changes_pending 0")...).Replace(recorded(t).Text())
		m, err := ParseMetrics(text)
		require.NoError(t, err)
		return m
	}
	newLog := func(t *testing.T) *logFile {
		l, err := newLogFile("test")
		require.NoError(t, err)
		t.Cleanup(l.close)
		_, err = l.file.WriteString(recordedLog(t))
		require.NoError(t, err)
		return l
	}
	// At the start there were 2 Services and 1 slice, so 2x2 + 4x2 Service and 1 + 5 slice changes make 12 and 6.
	newAPI := func() *counter {
		return &counter{existing: apiserver.Changes{Services: 2, IPv4EndpointSlices: 1}, changes: slicesChanged(5)}
	}
	track := func(api *counter) *tracker {
		sent := api.changes
		api.changes = apiserver.Changes{}
		tr := newTracker(api, "1.37.2")
		api.changes = sent
		return tr
	}

	t.Run("covered, seen twice", func(t *testing.T) {
		tr, l, m := track(newAPI()), newLog(t), scrape(t, lastQueued, settled)
		missing, moved := tr.step(m, l, tr.goal(), never, never)
		assert.Equal(t, "its state has just changed", missing)
		assert.True(t, moved)
		missing, moved = tr.step(m, l, tr.goal(), never, never)
		assert.Empty(t, missing)
		assert.False(t, moved)
	})
	t.Run("a change during the last sync: all metrics are good", func(t *testing.T) {
		tr, l, m := track(newAPI()), newLog(t), scrape(t, lastQueued, "1.7960057205000000e+09")
		tr.step(m, l, tr.goal(), never, never)
		missing, _ := tr.step(m, l, tr.goal(), never, never)
		assert.Equal(t, "its last sync began before the last change", missing)
		missing, _ = tr.step(m, l, tr.goal(), -time.Hour, never)
		assert.NotEmpty(t, missing, "a sync is at work, however long it takes")
		tr.history.running["IPv4"] = false
		missing, _ = tr.step(m, l, tr.goal(), -time.Hour, never)
		assert.Empty(t, missing, "after the quiet period")
	})
	t.Run("a change about when the last sync began", func(t *testing.T) {
		tr, l, m := track(newAPI()), newLog(t), scrape(t, lastQueued, "1.7960057204501400e+09")
		tr.step(m, l, tr.goal(), never, 0)
		missing, _ := tr.step(m, l, tr.goal(), never, 0)
		assert.Equal(t, "its last sync may have begun before the last change", missing, "another one is at work")
		tr.history.running["IPv4"] = false
		missing, _ = tr.step(m, l, tr.goal(), never, 100*365*24*time.Hour)
		assert.Equal(t, "its last sync may have begun before the last change", missing)
		missing, _ = tr.step(m, l, tr.goal(), never, 0)
		assert.Empty(t, missing, "after the settle period")
	})
	t.Run("a change that has not arrived", func(t *testing.T) {
		api := newAPI()
		api.changes = slicesChanged(6)
		tr, l, m := track(api), newLog(t), scrape(t, lastQueued, settled)
		tr.checked = true // nothing changed before the first sync
		tr.step(m, l, tr.goal(), -time.Hour, never)
		missing, _ := tr.step(m, l, tr.goal(), -time.Hour, never)
		assert.Equal(t, "it has seen 6 of 7 EndpointSlice changes", missing)
	})
	t.Run("a change during the start, that came within the first list", func(t *testing.T) {
		api := newAPI()
		api.changes = slicesChanged(6)
		tr, l, m := track(api), newLog(t), scrape(t, lastQueued, settled)
		tr.step(m, l, tr.goal(), never, never)
		missing, _ := tr.step(m, l, tr.goal(), never, never)
		assert.Equal(t, "it has seen 6 of 7 EndpointSlice changes", missing)
		tr.history.running["IPv4"] = false
		missing, _ = tr.step(m, l, tr.goal(), -time.Hour, never)
		assert.Empty(t, missing, "after the quiet period")
		api.changes = slicesChanged(7)
		missing, _ = tr.step(m, l, tr.goal(), -time.Hour, never)
		assert.Equal(t, "it has seen 6 of 7 EndpointSlice changes", missing, "the next one counts")
	})
	t.Run("no API server to ask", func(t *testing.T) {
		tr, l, m := newTracker(nil, "1.37.2"), newLog(t), scrape(t, lastQueued, settled)
		tr.step(m, l, tr.goal(), never, never)
		missing, _ := tr.step(m, l, tr.goal(), never, never)
		assert.Empty(t, missing)
	})
	t.Run("a log that tells nothing", func(t *testing.T) {
		l, err := newLogFile("test")
		require.NoError(t, err)
		t.Cleanup(l.close)
		tr := track(newAPI())
		_, worthwhile := tr.logged(l, time.Now(), time.Hour)
		assert.False(t, worthwhile)
		_, worthwhile = tr.logged(l, time.Now(), 0)
		assert.True(t, worthwhile, "after the patience")
		missing, _ := tr.step(scrape(t), l, tr.goal(), never, never)
		assert.Equal(t, "it has not chosen its IP families", missing)
	})
}
