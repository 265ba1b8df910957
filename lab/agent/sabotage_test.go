package agent

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
	"kplab/lab/sabotage"
)

// bareEnv has no hosts at all.
type bareEnv struct {
	lab.Env
	closed bool
}

func (e *bareEnv) Nodes() []lab.Node    { return nil }
func (e *bareEnv) Hosts() []string      { return nil }
func (e *bareEnv) Cluster() lab.Cluster { return nil }
func (e *bareEnv) Close() error         { e.closed = true; return nil }

func breakEnv(t *testing.T) (context.Context, *breakage) {
	t.Helper()
	ctx, b, err := sabotaged(t.Context(), sabotage.NoKubeProxy, &bareEnv{}, lab.Cell{Mode: lab.NFTables}, lab.Machine{})
	require.NoError(t, err)
	t.Cleanup(b.end)
	return ctx, b
}

func TestSabotagedCellEndsAtItsFirstDeviation(t *testing.T) {
	for _, tt := range []struct {
		check  lab.Check
		want   lab.Verdict
		reason string
	}{
		{lab.Check{Step: "s:1", What: "p", Expected: "x", Observed: "y"}, lab.Fail, "s:1: p: expected x, observed y"},
		{lab.Check{Step: "s:1", What: "p", Expected: "x", Observed: "y", Control: true}, lab.Error, "control deviates: s:1: p: expected x, observed y"},
	} {
		ctx, b := breakEnv(t)
		b.check(lab.Check{OK: true})
		require.NoError(t, ctx.Err())
		b.check(tt.check)
		require.Error(t, ctx.Err(), "what follows could not make it a pass again")
		r := lab.Result{Verdict: lab.Error, Reason: "context canceled"} // as a script that is cut short ends
		b.conclude(ctx, &r)
		assert.Equal(t, tt.want, r.Verdict)
		assert.Equal(t, tt.reason, r.Reason)
		assert.Equal(t, &lab.Sabotage{Name: sabotage.NoKubeProxy}, r.Sabotage)
	}
}

func TestSabotagedCellThatEndsByItself(t *testing.T) {
	ctx, b := breakEnv(t)
	r := lab.Result{Verdict: lab.Pass}
	b.conclude(ctx, &r)
	assert.Equal(t, lab.Pass, r.Verdict)
	assert.NotNil(t, r.Sabotage)
	assert.True(t, b.wantsEvidence(lab.Pass), "how it survived")
	assert.False(t, b.wantsEvidence(lab.Fail))
}

// A verdict that the cell's deadline or an interrupted run made is not the sabotage's.
func TestSabotagedCellThatIsCutShort(t *testing.T) {
	outer, cancel := context.WithCancelCause(t.Context())
	ctx, b, err := sabotaged(outer, sabotage.NoKubeProxy, &bareEnv{}, lab.Cell{}, lab.Machine{})
	require.NoError(t, err)
	defer b.end()
	cancel(errCellDeadline)
	r := lab.Result{Verdict: lab.Error, Reason: "late"}
	b.conclude(ctx, &r)
	assert.Equal(t, "late", r.Reason)
	assert.Nil(t, r.Sabotage)
}

func TestEnvThatCannotBeBroken(t *testing.T) {
	for name, want := range map[string]lab.Verdict{
		"dead-endpoints": lab.Error, // the env has no server pods
		"wrong-mode":     lab.Skip,  // nor can this kernel run another mode
	} {
		env := &bareEnv{}
		a := Agent{NewEnv: func(context.Context, lab.Job, lab.Cell, lab.Machine) (lab.Env, error) { return env, nil }}
		r := runSabotaged(t, a, name)
		assert.Equal(t, want, r.Verdict, r.Reason)
		assert.Nil(t, r.Sabotage, "so that nobody takes it for turned")
		assert.True(t, env.closed)
	}
	verdict, reason := notBroken(errors.New("no such tool"))
	assert.Equal(t, lab.Error, verdict)
	assert.Equal(t, "no such tool", reason)
}

func runSabotaged(t *testing.T, a Agent, name string) (result lab.Result) {
	t.Helper()
	job := lab.Job{
		Cells:     []lab.Cell{{Scenario: "case", Mode: lab.IPTables}},
		Scenarios: map[string]lab.Source{"case": {File: "case.txtar", Text: "# It.\nprobe c1 tcp s1:80\nexpect reachable\n"}},
		Sabotage:  name,
	}
	require.NoError(t, a.Run(t.Context(), job, lab.Machine{Release: "5.10.0"}, func(e lab.Event) {
		if e.Result != nil {
			result = *e.Result
		}
	}))
	return result
}
