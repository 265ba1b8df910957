package script

import (
	"fmt"
	"strings"

	"kplab/lab"
)

// NFTablesFloor is the kernel below which kube-proxy refuses nftables mode (KEP-3866; pkg/proxy/nftables).
const NFTablesFloor = "5.13"

// KernelUnmet says what the machine's kernel lacks for the cell: the floor of the cell's mode, unless the scenario is about
// the floor, or a `requires` line about kernel: or feature:. It is "" where the kernel will do.
func (s *Script) KernelUnmet(c lab.Cell, m lab.Machine) string {
	switch {
	case s.FloorOff:
	case c.Mode == lab.NFTables && CompareVersions(m.Release, NFTablesFloor) < 0:
		return fmt.Sprintf("nftables mode needs kernel %s or later, this is %s", NFTablesFloor, m.Release)
	case c.Mode == lab.IPVS && !m.Features["ip_vs"]:
		return fmt.Sprintf("ipvs mode needs a kernel with IP_VS, and %s has none", m.Release)
	}
	sess := &session{script: s, Setting: Setting{Cell: c, Machine: m}}
	for _, r := range s.Requirements {
		if !strings.Contains(r.Needs, "kernel:") && !strings.Contains(r.Needs, "feature:") {
			continue
		}
		if applies, err := sess.all(r.Conditions); err != nil || !applies {
			continue // an error shows when the script runs
		}
		if holds, err := sess.all([]string{r.Needs}); err == nil && !holds {
			return fmt.Sprintf("needs %s: %s", r.Needs, r.Reason)
		}
	}
	return ""
}

// SubstrateUnmet says why the scenario has nothing to show on a substrate: a `requires` line about substrate:, or a step that a cluster in use
// must not see. It is "" where it has.
func (s *Script) SubstrateUnmet(substrate string) string {
	sess := &session{script: s, Setting: Setting{Cell: lab.Cell{Substrate: substrate}}}
	for _, r := range s.Requirements {
		if len(r.Conditions) > 0 || !strings.Contains(r.Needs, "substrate:") {
			continue
		}
		if holds, err := sess.all([]string{r.Needs}); err == nil && !holds {
			return fmt.Sprintf("needs %s: %s", r.Needs, r.Reason)
		}
	}
	if substrate == lab.ClusterSubstrate {
		if step := s.Intrudes(); step != "" {
			return "is not for a cluster in use: " + step
		}
	}
	return ""
}

// all evaluates conditions as they are written before a command, without brackets.
func (s *session) all(conditions []string) (bool, error) {
	known := s.conditions()
	for _, text := range conditions {
		tag, negated := strings.CutPrefix(text, "!")
		name, suffix, _ := strings.Cut(tag, ":")
		cond := known[name]
		if cond == nil {
			return false, fmt.Errorf("unknown condition %q", text)
		}
		holds, err := cond.Eval(nil, suffix)
		if err != nil || holds == negated {
			return false, err
		}
	}
	return true, nil
}
