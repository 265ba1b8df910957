package results

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
)

// part writes a shard's folder with a store, one passing cell with evidence for each scenario.
func part(t *testing.T, shard string, begin time.Time, host Host, scenarios ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "shard")
	var plan []lab.Cell
	for _, s := range scenarios {
		plan = append(plan, cell(s, lab.NFTables, lab.Kernel{Name: "host"}, "1.37.2"))
	}
	clock := begin
	s, err := create(dir, Options{Host: host, Command: []string{"kplab", "run"}, Plan: plan, Claims: catalogue, Shard: shard}, func() time.Time {
		clock = clock.Add(time.Second)
		return clock
	})
	require.NoError(t, err)
	m := s.Machine(plan)
	require.NoError(t, m.Add(lab.Event{Type: lab.EventReady, Machine: &lab.Machine{Release: "6.18.5", Accelerator: "host", CPU: host.CPU}}))
	require.NoError(t, m.Add(lab.Event{Type: lab.EventEvidence, Path: "console.log", Data: []byte("of " + shard)}))
	for _, c := range plan {
		k := check(c.Scenario+".txtar:3", "N1", "probe", "refused", "refused")
		for _, e := range []lab.Event{
			{Type: lab.EventStart, Cell: c.ID()},
			{Type: lab.EventCheck, Cell: c.ID(), Check: &k},
			{Type: lab.EventEvidence, Cell: c.ID(), Path: "n1/nft.txt", Data: []byte("of " + c.Scenario)},
			{Type: lab.EventEnd, Cell: c.ID(), Result: &lab.Result{Cell: c, Verdict: lab.Pass, DurationMs: 1000}},
		} {
			require.NoError(t, m.Add(e))
		}
	}
	_, err = s.Close("")
	require.NoError(t, err)
	return dir
}

func TestMerge(t *testing.T) {
	one := part(t, "1/2", start, Host{OS: "Debian", CPU: "A", Cores: 4, MemoryBytes: 8 << 30}, "b", "d")
	two := part(t, "2/2", start.Add(time.Minute), Host{OS: "Debian", CPU: "B", Cores: 2, MemoryBytes: 16 << 30}, "a", "c")
	dir := filepath.Join(t.TempDir(), "whole")
	run, err := Merge(dir, []string{"kplab", "merge"}, RefuseOverlap, two, one, one)
	require.NoError(t, err)

	var scenarios []string
	for _, c := range run.Cells {
		scenarios = append(scenarios, c.Scenario)
		for _, name := range c.Evidence {
			text, err := os.ReadFile(filepath.Join(dir, name))
			require.NoError(t, err)
			assert.Equal(t, "of "+c.Scenario, string(text))
		}
	}
	assert.Equal(t, []string{"a", "b", "c", "d"}, scenarios)
	assert.Empty(t, run.MissingShards())
	assert.Equal(t, ExitOK, ExitStatus(run))
	assert.Equal(t, Host{OS: "Debian", CPU: "A, B", Cores: 2, MemoryBytes: 8 << 30}, run.Host)
	assert.Len(t, run.Machines, 2, "the hosts differ")
	require.Len(t, run.Shards, 2)
	assert.Equal(t, "1/2", run.Shards[0].Shard)
	assert.Equal(t, run.Shards[0].Started, run.Started)
	assert.Equal(t, run.Shards[1].Finished, run.Finished)
	assert.Equal(t, Confirmed, run.Claims[0].Verdict)
	assert.Len(t, run.Claims[0].Cells, 4)
	text, err := os.ReadFile(filepath.Join(dir, "shards/2/machines/host.debian-12.netns/console.log"))
	require.NoError(t, err)
	assert.Equal(t, "of 2/2", string(text))
	assert.FileExists(t, filepath.Join(dir, "shards/1/events.jsonl"))

	read, err := Read(dir)
	require.NoError(t, err)
	assert.Equal(t, run, read)

	again := filepath.Join(t.TempDir(), "again")
	twice, err := Merge(again, []string{"kplab", "merge"}, RefuseOverlap, dir)
	require.NoError(t, err)
	assert.Equal(t, run.Cells, twice.Cells, "a merged run can be merged")
	assert.Equal(t, run.Shards, twice.Shards)
	assert.FileExists(t, filepath.Join(again, "shards/2/events.jsonl"))
}

func TestMergeLacksAShard(t *testing.T) {
	run, err := Merge(filepath.Join(t.TempDir(), "whole"), nil, RefuseOverlap, part(t, "1/3", start, Host{}, "a"), part(t, "3/3", start, Host{}, "c"))
	require.NoError(t, err)
	assert.Equal(t, []string{"2/3"}, run.MissingShards())
	assert.Equal(t, ExitUnknown, ExitStatus(run))
	assert.Contains(t, run.Summary(), "(missing: shard 2/3)")
}

func TestMergeRefuses(t *testing.T) {
	whole := func() string { return filepath.Join(t.TempDir(), "whole") }
	one := part(t, "1/2", start, Host{}, "a", "b")

	later := part(t, "1/2", start.Add(time.Hour), Host{}, "b")
	_, err := Merge(whole(), nil, RefuseOverlap, one, later)
	assert.NoError(t, err, "the same cell with the same evidence is no conflict")
	name := filepath.Join(later, "cells", cell("b", lab.NFTables, lab.Kernel{Name: "host"}, "1.37.2").ID(), "n1/nft.txt")
	require.NoError(t, os.WriteFile(name, []byte("another"), 0o600))
	_, err = Merge(whole(), nil, RefuseOverlap, one, later)
	assert.ErrorIs(t, err, ErrOverlap)
	assert.ErrorContains(t, err, "b.nftables.host.1.37.2.debian-12.netns ("+one)

	dir := whole()
	run, err := Merge(dir, nil, TakeNewest, later, one)
	require.NoError(t, err)
	require.Len(t, run.Cells, 2)
	text, err := os.ReadFile(filepath.Join(dir, run.Cells[1].Evidence[0]))
	require.NoError(t, err)
	assert.Equal(t, "another", string(text), "whichever is named first")

	_, err = Merge(one, nil, RefuseOverlap, one)
	assert.ErrorIs(t, err, ErrExists)
	_, err = Merge(whole(), nil, RefuseOverlap, t.TempDir())
	assert.ErrorIs(t, err, ErrUnmergeable)
	require.NoError(t, os.WriteFile(filepath.Join(one, "bench.txt"), []byte("BenchmarkX 1 1 ns/op\n"), 0o600))
	_, err = Merge(whole(), nil, RefuseOverlap, one)
	assert.ErrorIs(t, err, ErrUnmergeable)
	assert.ErrorContains(t, err, "it holds figures")
}
