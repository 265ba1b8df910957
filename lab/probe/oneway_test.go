package probe

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestOneWay(t *testing.T) {
	tp := newTopology(t)
	noLeak(t)
	tp.serve(t, "s1", "udp", 53)
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	target := netip.AddrPortFrom(server4, 53)
	f, err := OneWay(ctx, tp.client, Request{Network: "udp", Target: target, Timeout: patient}, time.Millisecond)
	require.NoError(t, err)
	defer f.Close()
	collected := func(n int) func() bool {
		return func() bool {
			require.NoError(t, f.Collect(ctx, tp.server, target, patient))
			a := f.Between(n, n)
			return len(a) == 1 && a[0].Outcome.Kind == Reachable
		}
	}
	require.Eventually(t, collected(10), patient, time.Millisecond)
	assert.Equal(t, "s1", f.Between(10, 10)[0].Outcome.Endpoint)
	assert.Empty(t, f.Count().Answered, "nobody answers")

	fw := newFirewall(t, tp.client)
	fw.output(unix.IPPROTO_UDP, 53, drop())
	fw.load()
	c, err := f.Wait(ctx, func(c FlowCount) bool { return c.Errors["unreachable (EPERM)"] >= 3 })
	require.NoError(t, err)
	require.NoError(t, f.Collect(ctx, tp.server, target, patient))
	all := f.Between(1, c.Tried)
	require.Len(t, all, c.Tried)
	assert.Equal(t, Timeout, all[len(all)-1].Outcome.Kind, "what was not sent has not arrived")
	gap, open := Gap(all)
	assert.True(t, open)
	assert.Positive(t, gap)

	require.NoError(t, f.Collect(ctx, tp.server, netip.AddrPortFrom(server4, 54), patient), "where nothing listens, nothing has arrived")
	other, err := OneWay(ctx, tp.client, Request{Network: "udp", Target: netip.AddrPortFrom(server6, 54), Timeout: patient}, time.Hour)
	require.NoError(t, err)
	defer other.Close()
	require.NoError(t, other.Collect(ctx, tp.server, target, patient))
	assert.Equal(t, Timeout, other.Between(1, 1)[0].Outcome.Kind, "another flow's numbers are not its own")
}

func TestSpans(t *testing.T) {
	for _, tc := range []struct {
		name string
		came []int
		want spans
	}{
		{"none", nil, nil},
		{"all", []int{1, 2, 3}, spans{{1, 3}}},
		{"a gap", []int{1, 2, 5, 6}, spans{{1, 2}, {5, 6}}},
		{"out of order", []int{2, 1, 3}, spans{{2, 2}, {1, 1}, {3, 3}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s spans
			for _, n := range tc.came {
				s = s.with(n)
			}
			assert.Equal(t, tc.want, s)
		})
	}
}
