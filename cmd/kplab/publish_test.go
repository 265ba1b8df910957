package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
	"kplab/results"
)

// TestPublish takes a run that this repository holds through report, compare and merge.
func TestPublish(t *testing.T) {
	aRun, err := filepath.Abs("../../results/report/testdata/run")
	require.NoError(t, err)
	dir := t.TempDir()

	r := kplab(t, "report", aRun, "-o", filepath.Join(dir, "report"))
	require.Zero(t, r.status, r.stderr)
	for _, name := range []string{"index.html", "report.md", "report.json", "junit.xml", "cells.csv"} {
		assert.FileExists(t, filepath.Join(dir, "report", name))
	}

	merged := filepath.Join(dir, "merged")
	r = kplab(t, "merge", aRun, "-o", merged)
	require.Zero(t, r.status, r.stderr)
	r = kplab(t, "compare", aRun, merged)
	assert.Zero(t, r.status, r.stderr)
	assert.Contains(t, r.stdout, "0 verdicts and 0 checks changed; no regression")

	run, err := results.Read(merged)
	require.NoError(t, err)
	for i, c := range run.Cells {
		if c.Verdict == lab.Pass {
			run.Cells[i].Verdict, run.Cells[i].Reason = lab.Fail, "of this test's making"
			break
		}
	}
	text, err := json.Marshal(run)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(merged, "run.json"), text, 0o600))
	r = kplab(t, "compare", aRun, merged, "--format", "json")
	assert.Equal(t, results.ExitFail, r.status)
	var c results.Comparison
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &c))
	assert.Equal(t, 1, c.Regressions)
}
