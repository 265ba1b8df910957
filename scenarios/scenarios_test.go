package scenarios

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
	"kplab/lab/script"
)

// assertions are the commands that can make a verdict turn.
var assertions = []string{"expect", "must"}

func TestEveryScenarioIsWhole(t *testing.T) {
	all, claims := load(t)
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			assert.NotEmpty(t, s.Claims, "bears on no claim")
			for _, c := range s.Claims {
				known := slices.ContainsFunc(claims, func(have lab.Claim) bool { return have.ID == c.ID })
				assert.True(t, known || c.Text != "", "claim %s is neither in claims.yaml nor stated here", c.ID)
			}
			assert.Contains(t, s.Doc, "\n", "a paragraph that says what it shows, with sources")
			for _, mode := range lab.Modes() {
				if why := declaredOut(s, mode); why != "" {
					continue
				}
				assert.True(t, reaches(s, mode, "control"), "has no control in %s mode, and no `requires` that says why", mode)
				assert.True(t, reaches(s, mode, assertions...), "asserts nothing in %s mode, and no `requires` says why", mode)
			}
		})
	}
}

func TestEveryClaimHasAScenarioOrAReason(t *testing.T) {
	all, claims := load(t)
	of := map[string][]string{}
	contradicted := map[string]bool{}
	for _, s := range all {
		for _, c := range s.Claims {
			of[c.ID] = append(of[c.ID], s.Name)
		}
		for _, id := range contradictedBy(s) {
			contradicted[id] = true
		}
	}
	seen := map[string]bool{}
	for _, c := range claims {
		assert.False(t, seen[c.ID], "claim %s stands twice", c.ID)
		seen[c.ID] = true
		assert.NotEmpty(t, c.Source, "claim %s", c.ID)
		assert.NotEmpty(t, c.Text, "claim %s", c.ID)
		if c.Untested == "" {
			assert.NotEmpty(t, of[c.ID], "claim %s has no scenario, and no `untested` that says why", c.ID)
		} else {
			assert.Empty(t, of[c.ID], "claim %s has a scenario: it is no longer untested because %s", c.ID, c.Untested)
		}
		if c.Reality != "" {
			assert.True(t, contradicted[c.ID], "claim %s has a reality, and no scenario contradicts it", c.ID)
		}
	}
}

// TestConditionsAreUsedInBothSenses asks that whatever a script makes depend on a condition, some script says of the other case:
// a condition that only ever holds, or only ever does not, has never been seen to tell anything apart.
func TestConditionsAreUsedInBothSenses(t *testing.T) {
	all, _ := load(t)
	used := map[string][]string{} // condition, as written -> scripts
	skipped := map[string]bool{}  // cases that a `requires` line skips: that is what there is to say of them
	for _, s := range all {
		for _, step := range s.Steps {
			for _, c := range step.Conditions {
				used[c] = append(used[c], s.Name)
			}
		}
		for _, r := range s.Requirements {
			skipped[negation(r.Needs)] = true
		}
	}
	for c, scripts := range used {
		if oneSided[c] != "" {
			continue
		}
		covered := slices.ContainsFunc(others(c, used), func(o string) bool { return len(used[o]) > 0 || skipped[o] })
		assert.True(t, covered, "[%s] (%s) is used, and nothing that covers the other case", c, strings.Join(slices.Compact(scripts), ", "))
	}
	for c := range oneSided {
		assert.NotEmpty(t, used[c], "[%s] is excused and not used", c)
	}
}

// oneSided are conditions whose other case no script can say anything of, and why.
var oneSided = map[string]string{
	"substrate:netns": "a real node has a kubelet and perhaps others who keep rules and tables: only in netns is all of it kube-proxy's",
}

// others are the conditions that cover a case in which a condition does not hold.
func others(c string, used map[string][]string) (out []string) {
	out = append(out, negation(c))
	tag, negated := strings.CutPrefix(c, "!")
	prefix, value, _ := strings.Cut(tag, ":")
	switch prefix {
	case "kernel", "kube-proxy":
		if negated {
			break
		}
		opposite := map[string]string{"<": ">=", ">=": "<", ">": "<=", "<=": ">", "=": "!=", "!=": "="}
		for _, op := range []string{">=", "<=", "!=", ">", "<", "="} {
			if version, ok := strings.CutPrefix(value, op); ok {
				out = append(out, prefix+":"+opposite[op]+version)
				break
			}
		}
	case "feature":
	default: // one of several words: any other will do
		for o := range used {
			if p, v, _ := strings.Cut(o, ":"); p == prefix && v != value && !negated {
				out = append(out, o)
			}
		}
	}
	return out
}

func negation(c string) string {
	if tag, negated := strings.CutPrefix(c, "!"); negated {
		return tag
	}
	return "!" + c
}

func TestOthers(t *testing.T) {
	used := map[string][]string{"mode:ipvs": {"a"}, "mode:nftables": {"a"}, "userland:host": {"a"}}
	for c, want := range map[string][]string{
		"mode:ipvs":        {"!mode:ipvs", "mode:nftables"},
		"!mode:ipvs":       {"mode:ipvs"},
		"kernel:<6.1":      {"!kernel:<6.1", "kernel:>=6.1"},
		"kube-proxy:>1.36": {"!kube-proxy:>1.36", "kube-proxy:<=1.36"},
		"!kernel:>=6.1":    {"kernel:>=6.1"},
		"feature:ip_vs":    {"!feature:ip_vs"},
	} {
		assert.ElementsMatch(t, want, others(c, used), c)
	}
}

func load(t *testing.T) ([]*script.Script, []lab.Claim) {
	t.Helper()
	all, err := All()
	require.NoError(t, err)
	claims, err := Claims()
	require.NoError(t, err)
	return all, claims
}

// declaredOut is why a scenario has nothing to say in a mode, "" if it should have: a `requires` line about the mode, whose
// reason the skipped cells show.
func declaredOut(s *script.Script, mode lab.Mode) string {
	for _, r := range s.Requirements {
		if len(r.Conditions) == 0 && excludes(r.Needs, mode) {
			return r.Reason
		}
	}
	return ""
}

// excludes reports whether a condition never holds in a mode.
func excludes(condition string, mode lab.Mode) bool {
	tag, negated := strings.CutPrefix(condition, "!")
	m, about := strings.CutPrefix(tag, "mode:")
	return about && (m == string(mode)) == negated
}

// reaches reports whether the scenario has one of the commands in a place that no condition on the mode keeps it out of.
func reaches(s *script.Script, mode lab.Mode, commands ...string) bool {
	return slices.ContainsFunc(s.Steps, func(step script.Step) bool {
		return slices.Contains(commands, step.Command) &&
			!slices.ContainsFunc(step.Conditions, func(c string) bool { return excludes(c, mode) })
	})
}

// TestOtherModesHaveTheirFloor asks of scenarios that start kube-proxy in another mode than the cell's that they are skipped, not an error, where
// the kernel is below that mode's floor.
func TestOtherModesHaveTheirFloor(t *testing.T) {
	all, _ := load(t)
	lacking := map[lab.Mode]lab.Machine{
		lab.NFTables: {Release: "5.10.0", Features: map[string]bool{"ip_vs": true, "dummy": true, "sctp": true}},
		lab.IPVS:     {Release: "6.12.0", Features: map[string]bool{"ip_vs": false, "dummy": true, "sctp": true}},
	}
	asked := 0
	for _, s := range all {
		for _, mode := range lab.Modes() {
			for _, other := range othersStarted(s, mode) {
				machine, has := lacking[other]
				if !has {
					continue
				}
				asked++
				assert.NotEmpty(t, s.KernelUnmet(lab.Cell{Mode: mode}, machine), "%s in %s mode starts kube-proxy in %s mode on a kernel that cannot", s.Name, mode, other)
			}
		}
	}
	assert.NotZero(t, asked)
}

// othersStarted lists the modes, other than the cell's, in which a scenario starts kube-proxy and wants it to run.
func othersStarted(s *script.Script, mode lab.Mode) (others []lab.Mode) {
	for _, step := range s.Steps {
		if step.Command != "kube-proxy" || slices.Contains(step.Args, "-may-exit") || slices.ContainsFunc(step.Conditions, func(c string) bool { return excludes(c, mode) }) {
			continue
		}
		for _, a := range step.Args {
			if other, ok := strings.CutPrefix(a, "mode="); ok && lab.Mode(other) != mode {
				others = append(others, lab.Mode(other))
			}
		}
	}
	return others
}

// contradictedBy lists the claims that a scenario asserts to be wrong.
func contradictedBy(s *script.Script) (ids []string) {
	var current []string // the claim that each mode is at: guards make them differ
	for _, step := range s.Steps {
		switch {
		case step.Command == "claim" && len(step.Conditions) == 0:
			current = step.Args[:1]
		case step.Command == "claim":
			current = append(slices.Clone(current), step.Args[0])
		case slices.Contains(step.Args, "contradicts"):
			ids = append(ids, current...)
		}
	}
	return ids
}

// TestReadSafe asks that a cluster in use gets the canary and what the migration is most about, and nothing that acts on its nodes.
func TestReadSafe(t *testing.T) {
	all, _ := load(t)
	safe := map[string]bool{}
	for _, s := range all {
		safe[s.Name] = s.SubstrateUnmet(lab.ClusterSubstrate) == ""
	}
	for _, name := range []string{"clusterip-basics", "external-traffic-policy", "hairpin", "internal-traffic-policy", "nodeport-localhost", "session-affinity"} {
		assert.True(t, safe[name], name)
	}
	for _, name := range []string{"asymmetric-route", "lc-scheduler-skew", "load-balancer-source-ranges", "mode-unset", "nodeport-host-firewall-input", "state-by-mode", "verify-by-kubectl"} {
		assert.False(t, safe[name], name)
	}
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
