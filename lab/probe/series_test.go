package probe

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGap(t *testing.T) {
	const step = 20 * time.Millisecond
	for _, c := range []struct {
		name, kinds string // r reachable, t timeout; one every step, each took 5 ms
		gap         time.Duration
		open        bool
	}{
		{"none failed", "rrrr", 0, false},
		{"one failed", "rrtrr", step, false},
		{"reachable in between is in the gap", "rtrtr", 3 * step, false},
		{"from the first on", "ttr", 2 * step, false},
		{"never again", "rtt", step + 5*time.Millisecond, true},
		{"nothing", "", 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all []Attempt
			for i, k := range c.kinds {
				a := Attempt{Number: i + 1, Started: time.Duration(i) * step, Took: 5 * time.Millisecond, Outcome: Outcome{Kind: Reachable}}
				if k == 't' {
					a.Outcome.Kind = Timeout
				}
				all = append(all, a)
			}
			gap, open := Gap(all)
			assert.Equal(t, c.gap, gap)
			assert.Equal(t, c.open, open)
		})
	}
}

func TestSeries(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	target := netip.AddrPortFrom(server4, 80)
	s, err := StartSeries(ctx, tp.client, Request{Network: "tcp", Target: target, Timeout: impatient}, 5*time.Millisecond)
	require.NoError(t, err)

	// Nothing listens yet.
	before, err := s.Between(ctx, 1, 3)
	require.NoError(t, err)
	server, err := Serve(tp.server, "s1", "tcp", 80)
	require.NoError(t, err)
	defer server.Close()
	from := s.Started() + 1
	after, err := s.Between(ctx, from, from+3)
	require.NoError(t, err)
	require.NoError(t, s.Close())

	all := append(before, after...)
	for i, a := range all {
		want := Refused
		if i >= len(before) {
			want = Reachable
		}
		assert.Equal(t, want, a.Outcome.Kind, "attempt %d", a.Number)
		if i > 0 {
			assert.Greater(t, a.Number, all[i-1].Number)
			assert.Greater(t, a.Started, all[i-1].Started)
		}
	}
	_, open := Gap(all)
	assert.False(t, open)
}
