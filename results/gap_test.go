package results

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
)

func TestGaps(t *testing.T) {
	cell := func(mode lab.Mode, gaps ...lab.Gap) lab.Result {
		return lab.Result{Cell: lab.Cell{Scenario: "rollout", Mode: mode, Substrate: "kind", Kernel: lab.Kernel{Name: "host"}}, Gaps: gaps}
	}
	gap := func(during string, failed int, ms float64, open bool) lab.Gap {
		return lab.Gap{
			Step: "rollout.txtar:9", During: during, Traffic: "ext n1:nodeport/web", Attempts: 100, Failed: failed, Ms: ms, Open: open,
			Outcomes: map[string]int{"reachable": 100 - failed, "timeout": failed},
		}
	}
	rows := Gaps(&Run{Cells: []lab.Result{
		cell(lab.IPTables, gap(lab.BeforeAnyChange, 0, 0, false), gap("restart", 0, 0, false)),
		cell(lab.NFTables, gap(lab.BeforeAnyChange, 0, 0, false), gap("restart", 3, 61.5, false), gap("stop", 100, 900, true)),
	}})
	require.Len(t, rows, 2)
	assert.Equal(t, "restart: ext n1:nodeport/web", rows[0].What)
	require.Len(t, rows[0].Outcomes, 2)
	assert.Equal(t, "none of 100", rows[0].Outcomes[0].Observed)
	assert.Equal(t, "62 ms, 3 of 100 (3 timeout)", rows[0].Outcomes[1].Observed)
	longer := gap("restart", 0, 0, false)
	longer.Attempts = 140
	alike := Gaps(&Run{Cells: []lab.Result{cell(lab.IPTables, gap("restart", 0, 0, false), longer), cell(lab.NFTables, longer)}})
	require.Len(t, alike, 1)
	require.Len(t, alike[0].Outcomes, 2, "a setting says once what is the same of it")
	assert.Equal(t, "none of 100 to 140", alike[0].Outcomes[0].Observed)
	assert.Equal(t, "none of 100 to 140", alike[0].Outcomes[1].Observed)
	require.Len(t, rows[1].Outcomes, 1, "a mode that did not look has none")
	assert.Equal(t, "down for 900 ms, 100 of 100 (100 timeout)", rows[1].Outcomes[0].Observed)
}
