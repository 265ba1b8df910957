package agent

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
)

// run runs one cell of a scenario and returns its result and the events.
func run(t *testing.T, a Agent, text string, mode lab.Mode, m lab.Machine) (lab.Result, []lab.EventType) {
	t.Helper()
	job := lab.Job{
		Cells:     []lab.Cell{{Scenario: "case", Mode: mode, Kernel: lab.Kernel{Name: "host"}, KubeProxy: "1.37.2", Userland: lab.Userland{Name: "debian-12"}, Substrate: "netns"}},
		Scenarios: map[string]lab.Source{"case": {File: "case.txtar", Text: text}},
	}
	var result lab.Result
	var types []lab.EventType
	err := a.Run(t.Context(), job, m, func(e lab.Event) {
		types = append(types, e.Type)
		if e.Result != nil {
			result = *e.Result
		}
	})
	require.NoError(t, err)
	return result, types
}

func TestCellsBelowTheirFloorAreSkipped(t *testing.T) {
	a := Agent{NewEnv: func(context.Context, lab.Job, lab.Cell, lab.Machine) (lab.Env, error) {
		return nil, errors.New("no env is made for a cell that cannot run")
	}}
	const text = "# It.\nprobe c1 tcp s1:80\nexpect reachable\n"
	for _, tc := range []struct {
		mode lab.Mode
		m    lab.Machine
		want lab.Verdict
	}{
		{lab.NFTables, lab.Machine{Release: "5.10.0-46"}, lab.Skip},
		{lab.NFTables, lab.Machine{Release: "6.1.0-57"}, lab.Error},
		{lab.IPVS, lab.Machine{Release: "6.18.44", Features: map[string]bool{"ip_vs": false}}, lab.Skip},
		{lab.IPTables, lab.Machine{Release: "5.10.0-46"}, lab.Error},
	} {
		r, types := run(t, a, text, tc.mode, tc.m)
		assert.Equal(t, tc.want, r.Verdict, "%s on %s: %s", tc.mode, tc.m.Release, r.Reason)
		assert.Equal(t, []lab.EventType{lab.EventStart, lab.EventEnd}, types)
	}
	r, _ := run(t, a, "# It.\nfloor off\nprobe c1 tcp s1:80\nexpect reachable\n", lab.NFTables, lab.Machine{Release: "5.10.0-46"})
	assert.Equal(t, lab.Error, r.Verdict, "a scenario about the floor runs below it")
}

func TestAPanicIsAnError(t *testing.T) {
	a := Agent{NewEnv: func(context.Context, lab.Job, lab.Cell, lab.Machine) (lab.Env, error) { panic("a bug") }}
	r, types := run(t, a, "# It.\nprobe c1 tcp s1:80\nexpect reachable\n", lab.IPTables, lab.Machine{Release: "6.1"})
	assert.Equal(t, lab.Error, r.Verdict)
	assert.Equal(t, "the lab panicked: a bug", r.Reason)
	assert.Equal(t, lab.EventEnd, types[len(types)-1])
}
