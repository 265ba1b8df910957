package scenarios

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab/script"
)

func TestEveryScenarioIsWhole(t *testing.T) {
	all, err := All()
	require.NoError(t, err)
	claims, err := Claims()
	require.NoError(t, err)
	known := map[string]bool{}
	for _, c := range claims {
		assert.False(t, known[c.ID], "claim %s stands twice", c.ID)
		assert.NotEmpty(t, c.Source, "claim %s", c.ID)
		assert.NotEmpty(t, c.Text, "claim %s", c.ID)
		known[c.ID] = true
	}
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			assert.NotEmpty(t, s.Claims, "bears on no claim")
			for _, c := range s.Claims {
				assert.True(t, known[c.ID], "claim %s is not in claims.yaml", c.ID)
			}
			assert.Contains(t, s.Doc, "\n", "a paragraph that says what it shows, with sources")
			for _, mode := range []string{"ipvs", "iptables", "nftables"} {
				assert.True(t, reaches(s, "control", mode), "has no control in %s mode", mode)
				assert.True(t, reaches(s, "expect", mode), "asserts nothing in %s mode", mode)
			}
		})
	}
}

// reaches reports whether the scenario has a command that no condition on the mode keeps out.
func reaches(s *script.Script, command, mode string) bool {
	for _, step := range s.Steps {
		if step.Command != command {
			continue
		}
		out := false
		for _, c := range step.Conditions {
			tag, negated := strings.CutPrefix(c, "!")
			if m, ok := strings.CutPrefix(tag, "mode:"); ok && (m == mode) == negated {
				out = true
			}
		}
		if !out {
			return true
		}
	}
	return false
}

func TestSelect(t *testing.T) {
	chosen, err := Select([]string{"nodeport-localhost", "clusterip-basics"})
	require.NoError(t, err)
	require.Len(t, chosen, 2)
	assert.Equal(t, "nodeport-localhost", chosen[0].Name, "in the order asked")

	_, err = Select([]string{"nodeport-localhots"})
	assert.ErrorContains(t, err, `unknown scenario "nodeport-localhots": did you mean "nodeport-localhost"?`)
	_, err = Select([]string{"/nowhere/case.txtar"})
	assert.ErrorContains(t, err, "no such file")
}
