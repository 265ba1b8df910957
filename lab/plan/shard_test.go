package plan

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
	"kplab/lab/script"
)

func TestParseShard(t *testing.T) {
	s, err := ParseShard("2/5")
	require.NoError(t, err)
	assert.Equal(t, Shard{2, 5}, s)
	assert.Equal(t, "2/5", s.String())
	assert.Empty(t, Shard{}.String())
	for _, bad := range []string{"", "2", "0/5", "6/5", "-1/5", "1/0", "a/b", "1/2/3", "1.5/2"} {
		_, err := ParseShard(bad)
		assert.ErrorContains(t, err, "expected I/N", bad)
	}
}

// Shards run on machines that can do different things. Together they must have every cell, and none twice, and be of one size.
func TestShards(t *testing.T) {
	var scripts []*script.Script
	for i := range 35 {
		header := ""
		if i%5 == 0 {
			header = "requires feature:ip_vs 'why'"
		}
		scripts = append(scripts, parse(t, fmt.Sprintf("s%02d", i), header))
	}
	m := Default()
	m.Kernels, m.KubeProxies, m.Repeat = []string{Auto, "debian-12", "debian-11"}, []string{"1.33.13", "1.37.2"}, 2
	hosts := []lab.Machine{
		{Release: "6.18.44", Features: map[string]bool{"ip_vs": false}},
		{Release: "6.1.0", Features: map[string]bool{"ip_vs": true}},
	}
	cells := func(m Matrix, host lab.Machine) (all []lab.Cell) {
		for _, g := range Make(m, scripts, host) {
			all = append(all, g.Cells...)
		}
		return all
	}
	combination := func(c lab.Cell) string {
		return fmt.Sprint(c.Scenario, c.Mode, c.KubeProxy, c.Userland.Name, c.Substrate)
	}
	for n := 1; n <= 7; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			want := map[string]bool{}
			for _, c := range cells(m, hosts[0]) {
				want[combination(c)] = true
			}
			ids, got := map[string]int{}, map[string]int{}
			sizes, modes := []int{}, map[lab.Mode][]int{}
			for i := 1; i <= n; i++ {
				part := m
				part.Shard = Shard{i, n}
				mine, mode := map[string]bool{}, map[lab.Mode]map[string]bool{}
				for _, c := range cells(part, hosts[i%2]) {
					ids[c.ID()]++
					mine[combination(c)] = true
					if mode[c.Mode] == nil {
						mode[c.Mode] = map[string]bool{}
					}
					mode[c.Mode][combination(c)] = true
				}
				for c := range mine {
					got[c]++
				}
				sizes = append(sizes, len(mine))
				for k, of := range mode {
					modes[k] = append(modes[k], len(of))
				}
			}
			for id, times := range ids {
				require.Equal(t, 1, times, "%s is in %d shards", id, times)
			}
			require.Len(t, got, len(want), "every combination is in a shard")
			assert.LessOrEqual(t, spreadOf(sizes), 1)
			for mode, sizes := range modes {
				assert.LessOrEqual(t, spreadOf(sizes), 2, "%s: one for each version", mode)
			}
		})
	}
	part := m
	part.Shard = Shard{2, 3}
	assert.Equal(t, cells(part, hosts[0]), cells(part, hosts[0]), "deterministic")
}

func spreadOf(sizes []int) int {
	lo, hi := sizes[0], sizes[0]
	for _, n := range sizes {
		lo, hi = min(lo, n), max(hi, n)
	}
	return hi - lo
}
