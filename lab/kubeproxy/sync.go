package kubeproxy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"kplab/lab/apiserver"
)

// Metrics of pkg/proxy/metrics in 1.33 to 1.37. The four that count changes are the whole process's. A Service counts for
// each IP family's proxier (ServiceChangeTracker.Update), a slice for its own family's
// (EndpointsChangeTracker.EndpointSliceUpdate). A pending gauge is set to zero by whichever family's sync begins.
const (
	statePrefix          = "kubeproxy_sync_proxy_rules_"
	metricServiceTotal   = statePrefix + "service_changes_total"
	metricServicePending = statePrefix + "service_changes_pending"
	metricSliceTotal     = statePrefix + "endpoint_changes_total"
	metricSlicePending   = statePrefix + "endpoint_changes_pending"
	metricSynced         = statePrefix + "last_timestamp_seconds"        // by ip_family: end of the last good sync
	metricQueued         = statePrefix + "last_queued_timestamp_seconds" // by ip_family: last change that asks for one
	metricDuration       = statePrefix + "duration_seconds"              // by ip_family: a histogram
)

var stateMetrics = []string{
	metricServiceTotal, metricServicePending, metricSliceTotal, metricSlicePending, metricSynced, metricQueued, metricDuration,
}

// counts are changes that kube-proxy has seen, or should have.
type counts struct{ services, slices int64 }

func (c counts) plus(d counts) counts  { return counts{c.services + d.services, c.slices + d.slices} }
func (c counts) minus(d counts) counts { return counts{c.services - d.services, c.slices - d.slices} }

// addressed is how many changes of n a kube-proxy counts that runs the families ("IPv4", "IPv6"). Before 1.36 its selector
// leaves out the slices of Services that name another proxy.
func addressed(n apiserver.Changes, families []string, minor int) counts {
	c := counts{services: n.Services * int64(len(families))}
	if slices.Contains(families, "IPv4") {
		c.slices += n.IPv4EndpointSlices
		if minor >= 36 {
			c.slices += n.OtherProxyIPv4EndpointSlices
		}
	}
	if slices.Contains(families, "IPv6") {
		c.slices += n.IPv6EndpointSlices
		if minor >= 36 {
			c.slices += n.OtherProxyIPv6EndpointSlices
		}
	}
	return c
}

// familyState is how far the syncs of an IP family are, in seconds since 1970.
type familyState struct{ synced, queued float64 }

// state is what a scrape tells about how far kube-proxy is.
type state struct {
	seen    counts
	pending counts
	family  [2]familyState // as families are ordered
	// longest is an upper bound of a usual sync: the mean of those so far, of the slower family.
	longest time.Duration
}

func readState(m *Metrics, families []string) state {
	sum := func(name string, labels map[string]string) float64 { v, _ := m.Sum(name, labels); return v }
	s := state{
		seen:    counts{int64(sum(metricServiceTotal, nil)), int64(sum(metricSliceTotal, nil))},
		pending: counts{int64(sum(metricServicePending, nil)), int64(sum(metricSlicePending, nil))},
	}
	for i, f := range families {
		labels := map[string]string{"ip_family": f}
		s.family[i] = familyState{sum(metricSynced, labels), sum(metricQueued, labels)}
		if n := sum(metricDuration+"_count", labels); n > 0 {
			mean := time.Duration(sum(metricDuration+"_sum", labels) / n * float64(time.Second))
			s.longest = max(s.longest, mean)
		}
	}
	return s
}

// equal reports whether nothing has happened between two states.
func (s state) equal(t state) bool {
	return s.seen == t.seen && s.pending == t.pending && s.family == t.family
}

// missing says what keeps a kube-proxy in this state from being synced, "" if nothing does that the metrics show.
func (s state) missing(want counts, families []string) string {
	var missing []string
	for i, f := range families {
		switch {
		case s.family[i].synced == 0:
			missing = append(missing, "no "+f+" sync yet")
		case s.family[i].synced < s.family[i].queued:
			missing = append(missing, "a queued "+f+" sync is not done")
		}
	}
	if m := s.unseen(want); m != "" {
		missing = append(missing, m)
	}
	if s.pending.services > 0 || s.pending.slices > 0 {
		missing = append(missing, fmt.Sprintf("%d Service and %d EndpointSlice changes are pending", s.pending.services, s.pending.slices))
	}
	return strings.Join(missing, ", ")
}

// unseen says which changes have not arrived at kube-proxy.
func (s state) unseen(want counts) string {
	var missing []string
	if s.seen.services < want.services {
		missing = append(missing, fmt.Sprintf("it has seen %d of %d Service changes", s.seen.services, want.services))
	}
	if s.seen.slices < want.slices {
		missing = append(missing, fmt.Sprintf("it has seen %d of %d EndpointSlice changes", s.seen.slices, want.slices))
	}
	return strings.Join(missing, ", ")
}

// span is one sync, in seconds since 1970: when it ended, as logged, and how long it took, as measured right before. It
// began at or before end-elapsed.
type span struct{ elapsed, end float64 }

// syncHistory has the last syncs of each family, from the log. The metrics tell when the last sync ended and not when it
// began; a change that arrives while a sync is at work is not in it, and the other family's sync may clear the pending
// gauge. Between the two, only the log tells that the next sync has yet to come.
type syncHistory struct {
	spans   map[string][]span
	running map[string]bool
	syncs   int    // all that ended, of all families
	rest    string // an unfinished line
}

const syncsKept = 64

// read takes in further text of the log.
func (h *syncHistory) read(text string, now time.Time) {
	text = h.rest + text
	end := strings.LastIndexByte(text, '\n') + 1
	h.rest = text[end:]
	for line := range strings.Lines(text[:end]) {
		complete := strings.Contains(line, `yncProxyRules complete"`)
		if !complete && !strings.Contains(line, `"Syncing `) {
			continue
		}
		r := parseRecord(strings.TrimSuffix(line, "\n"))
		logged, ok := r.time(now)
		if !ok {
			continue
		}
		var family string
		var elapsed time.Duration
		_, pairs := r.fields()
		for _, p := range pairs {
			switch p.key {
			case "ipFamily":
				family = p.value
			case "elapsed":
				elapsed, _ = time.ParseDuration(p.value)
			}
		}
		if family == "" || complete && elapsed == 0 {
			continue
		}
		if h.spans == nil {
			h.spans, h.running = map[string][]span{}, map[string]bool{}
		}
		if h.running[family] = !complete; !complete {
			continue
		}
		h.syncs++
		known := append(h.spans[family], span{elapsed.Seconds(), seconds(logged)})
		h.spans[family] = known[max(0, len(known)-syncsKept):]
	}
}

// seconds is how client_golang's SetToCurrentTime writes a time.
func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// coverage is what the log says of whether the last sync had the last change in it.
type coverage int

const (
	unlogged  coverage = iota // the log does not show the sync
	uncovered                 // it began before the change was queued
	ambiguous                 // it began within a moment of that
	covered
)

// covers compares, in each family, when the last good sync began with when the last change was queued; the worst counts.
// A sync sets its timestamp, then measures how long it took, then logs that, so that it began between synced-elapsed and
// end-elapsed; these are mostly some 50 µs apart, and a change that is alone is queued about that long before its sync.
func (h *syncHistory) covers(s state, families []string) coverage {
	const truncated = 2e-6 // the log's times are whole microseconds
	worst := covered
	for i, f := range families {
		at := s.family[i]
		n := slices.IndexFunc(h.spans[f], func(s span) bool { return s.end-s.elapsed <= at.synced && at.synced <= s.end+truncated })
		if n < 0 {
			return unlogged
		}
		switch sync := h.spans[f][n]; {
		case at.queued > sync.end-sync.elapsed:
			worst = min(worst, uncovered)
		case at.queued > at.synced-sync.elapsed-truncated:
			worst = min(worst, ambiguous)
		}
	}
	return worst
}

// busy reports whether a sync of a family is at work.
func (h *syncHistory) busy(families []string) bool {
	return slices.ContainsFunc(families, func(f string) bool { return h.running[f] })
}

// settled reports whether no sync of a family is at work, and none has been since a time in seconds since 1970.
func (h *syncHistory) settled(since float64, families []string) bool {
	return !h.busy(families) && !slices.ContainsFunc(families, func(f string) bool {
		spans := h.spans[f]
		return len(spans) > 0 && spans[len(spans)-1].end > since
	})
}
