package script

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
)

// nodeless is an env without nodes: the only thing that await asks of one is whether its kube-proxies run.
type nodeless struct{ lab.Env }

func (nodeless) Nodes() []lab.Node { return nil }

func TestAwaitRepeatsUntilItIsAsExpected(t *testing.T) {
	var logged []string
	s := &session{Setting: Setting{Env: nodeless{}, Log: func(line string) { logged = append(logged, line) }}}
	e, err := parseExpectation([]string{">=", "3"})
	require.NoError(t, err)
	seen := 0
	err = s.await(t.Context(), func(context.Context) error {
		if seen++; seen == 1 {
			return errors.New("not listening yet")
		}
		s.observe(observation{what: "count", outcome: strconv.Itoa(seen)})
		return nil
	}, e)
	require.NoError(t, err)
	assert.Equal(t, 3, seen)
	require.Len(t, s.last, 1)
	assert.Equal(t, "3", s.last[0].outcome, "the next assertion looks at the last")
	assert.Equal(t, []string{"  count: 3"}, logged, "and the transcript has it once")

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the run was cancelled"))
	err = s.await(ctx, func(context.Context) error { s.observe(observation{outcome: "0"}); return nil }, e)
	assert.ErrorContains(t, err, "the run was cancelled")
}
