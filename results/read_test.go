package results

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
)

// testdata/schema-1.json is as schema 1 was first written, with a field that this version does not know. It is not to
// be changed: runs like it are on people's disks.
func TestReadOlderSchema(t *testing.T) {
	run, err := Read("testdata/schema-1.json")
	require.NoError(t, err)
	assert.Equal(t, 1, run.Schema)
	assert.Equal(t, "20261130T015301.000Z", run.ID)
	assert.Equal(t, start, run.Started)
	assert.EqualValues(t, 83_400, run.DurationMs)
	assert.Equal(t, "testdata", run.Dir)
	require.Len(t, run.Machines, 1)
	assert.Equal(t, "debian-12", run.Machines[0].Kernel)
	assert.EqualValues(t, 5200, run.Machines[0].BootMs)
	require.Len(t, run.Cells, 1)
	c := run.Cells[0]
	assert.Equal(t, lab.NFTables, c.Mode)
	assert.Equal(t, "6.1.0-39-cloud-amd64", c.Kernel.Release)
	assert.Equal(t, lab.Fail, c.Verdict)
	assert.Equal(t, lab.Check{
		Claim: "N1", Step: "nodeport-secondary-address.txtar:12", What: "probe ext tcp n1.secondary:nodeport/web",
		Expected: "refused", Observed: "reachable",
	}, c.Checks[0])
	require.Len(t, run.Claims, 1)
	assert.Equal(t, Contradicted, run.Claims[0].Verdict)
	assert.Equal(t, "vips", run.Claims[0].Source)
	assert.Equal(t, ExitFail, ExitStatus(run))
}

func TestReadWithoutEvidence(t *testing.T) {
	text, err := os.ReadFile("testdata/schema-1.json")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run.json"), text, 0o666))
	run, err := Read(dir)
	require.NoError(t, err)
	assert.Empty(t, run.Cells[0].Evidence, "nothing but run.json is there")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "cells"), 0o777))
	run, err = Read(dir)
	require.NoError(t, err)
	assert.NotEmpty(t, run.Cells[0].Evidence)
}

func TestReadErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"schema": 2, "cells": {"not": "a list"}}`: "has schema 2, and this kplab reads up to 1: use a newer kplab",
		`{"cells": []}`:               `is not a kplab run: it has no "schema"`,
		`[1]`:                         "is not a kplab run",
		``:                            "is not a kplab run",
		`{"schema": 1, "cells": "x"}`: "is damaged",
	} {
		file := filepath.Join(t.TempDir(), "run.json")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o666))
		_, err := Read(file)
		require.ErrorContains(t, err, want)
		assert.Contains(t, err.Error(), file)
	}
	dir := t.TempDir()
	_, err := Read(dir)
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "holds no run")
	_, err = Read(filepath.Join(dir, "nowhere"))
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestThisHost(t *testing.T) {
	h := ThisHost()
	assert.NotEmpty(t, h.Kernel)
	assert.Positive(t, h.Cores)
	assert.Positive(t, h.MemoryBytes)
	assert.NotEmpty(t, h.User)
}
