package kubeproxy

import (
	"strings"
	"sync"
	"time"

	"kplab/lab/apiserver"
)

// tracker knows what one kube-proxy process has been sent, and follows how far it is.
type tracker struct {
	api      API // nil: not known, and whatever kube-proxy has seen is enough
	minor    int
	existing apiserver.Changes // at the process's start
	atStart  apiserver.Changes

	mu       sync.Mutex
	families []string // nil until the log tells them
	history  syncHistory
	logRead  int

	last  state
	since time.Time // of last

	// A change between the process's start and its first sync was sent either as a change or within the first list, and
	// may count for more or less than one. Then unsure is set, and what turned out is set as base.
	checked, unsure bool
	base, baseAt    *counts
}

// newTracker is made right before the process starts.
func newTracker(api API, version string) *tracker {
	t := &tracker{api: api, minor: minorOf(version), since: time.Now()}
	if api != nil {
		for t.atStart, t.existing = api.Changes(), api.Existing(); t.atStart != api.Changes(); {
			t.atStart, t.existing = api.Changes(), api.Existing()
		}
	}
	return t
}

// goal is what has been sent up to now.
func (t *tracker) goal() apiserver.Changes {
	if t.api == nil {
		return apiserver.Changes{}
	}
	return t.api.Changes()
}

// want is what kube-proxy has counted when it has seen goal.
func (t *tracker) want(goal apiserver.Changes) counts {
	now := addressed(goal, t.families, t.minor)
	if t.base != nil {
		return now.minus(*t.baseAt).plus(*t.base)
	}
	return now.minus(addressed(t.atStart, t.families, t.minor)).plus(addressed(t.existing, t.families, t.minor))
}

// step takes in a scrape and what was logged until then, and says what is missing, "" if the process is synced: the same
// good state was seen twice, since kube-proxy counts a change a moment before it queues a sync; and the last sync is
// known to have begun after the last change was queued; or it may have, and no other has begun within the settle period,
// in which one that was due would have; or nothing has moved for the quiet period, and the log shows no sync at work. moved reports whether anything differs from the last scrape.
func (t *tracker) step(m *Metrics, log *logFile, goal apiserver.Changes, quiet, settle time.Duration) (missing string, moved bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.readLog(log, now)
	if t.families == nil {
		return "it has not chosen its IP families", false
	}
	s := readState(m, t.families)
	if moved = !s.equal(t.last); moved {
		t.last, t.since = s, now
	}
	still := now.Sub(t.since) >= quiet+3*s.longest && !t.history.busy(t.families)
	t.check(s)

	want := t.want(goal)
	missing = s.missing(want, t.families)
	if missing == "" {
		if moved {
			return "its state has just changed", moved
		}
		if still {
			return "", moved
		}
		switch t.history.covers(s, t.families) {
		case covered:
			return "", moved
		case ambiguous:
			if t.history.settled(seconds(now.Add(-settle)), t.families) {
				return "", moved
			}
			return "its last sync may have begun before the last change", moved
		case uncovered:
			return "its last sync began before the last change", moved
		default:
			return "its log does not show its last sync", moved
		}
	}
	if t.unsure && still && missing == s.unseen(want) {
		at := addressed(goal, t.families, t.minor)
		t.base, t.baseAt, t.unsure = &s.seen, &at, false
		return "", moved
	}
	return missing, moved
}

// logged counts the syncs that the process's log shows. A scrape is not worthwhile as long as a family has none, since no
// metric can then show it synced, and in iptables mode each scrape before the first sync logs two errors (its metrics read
// nfacct counters that do not exist yet). After the patience, one is due all the same: the log may be turned down.
func (t *tracker) logged(l *logFile, began time.Time, patience time.Duration) (syncs int, worthwhile bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.readLog(l, now)
	worthwhile = t.families != nil
	for _, f := range t.families {
		worthwhile = worthwhile && len(t.history.spans[f]) > 0
	}
	return t.history.syncs, worthwhile || now.Sub(began) >= patience
}

// check finds out, at the first sync, whether the counts since the start can be relied on.
func (t *tracker) check(s state) {
	if t.checked || t.api == nil {
		return
	}
	for i := range t.families {
		if s.family[i].synced == 0 {
			return
		}
	}
	t.checked, t.unsure = true, t.api.Changes() != t.atStart
}

// readLog takes in what the process has logged since the last call.
func (t *tracker) readLog(l *logFile, now time.Time) {
	text := l.from(t.logRead)
	t.logRead += len(text)
	t.history.read(text, now)
	if t.families == nil {
		t.families = familiesIn(l.from(0))
	}
}

// familiesIn reads off a log which families the process runs, nil if it does not tell yet. The metrics cannot tell: a
// family's first sample comes a moment after the metrics server.
func familiesIn(log string) []string {
	for line := range strings.Lines(log) {
		switch {
		case strings.Contains(line, `"kube-proxy running in dual-stack mode"`):
			return []string{"IPv4", "IPv6"}
		case strings.Contains(line, `"kube-proxy running in single-stack mode"`):
			if strings.Contains(line, `ipFamily="IPv6"`) {
				return []string{"IPv6"}
			}
			return []string{"IPv4"}
		}
	}
	return nil
}
