package script

import (
	"context"
	"errors"
	"fmt"

	"kplab/lab"
)

// assertions compare what the last command observed with what the script says.
func (s *session) assertions() map[string]command {
	const args = "OUTCOME[,OUTCOME] [ATTRIBUTE=VALUE ...] | OP VALUE | ~ REGEXP [contradicts NOTE]"
	detail := []string{
		"OUTCOME is one of the words that the command before can say. ATTRIBUTE is one of its details (endpoint, source, icmp, ...). " +
			"OP is =, !=, >, >=, <, <=. With 'contradicts NOTE' the check asserts what really happens although the claim says otherwise: the ledger then has the claim as contradicted.",
	}
	return map[string]command{
		"expect": {args, "record a check on what was observed, and go on", detail, func(a []string) (action, error) {
			return s.assert(a, false, false)
		}},
		"control": {args, "record a check that shows the lab is alive: where it deviates, the cell is an error", detail, func(a []string) (action, error) {
			return s.assert(a, true, false)
		}},
		"must": {args, "record a check, and stop the cell if it deviates", detail, func(a []string) (action, error) {
			return s.assert(a, false, true)
		}},
		"save": {
			args:    "NAME",
			summary: "keep the last observed value as $NAME",
			parse: func(args []string) (action, error) {
				if len(args) != 1 {
					return nil, errors.New("expected one name")
				}
				if s.dry {
					return nil, s.state.Setenv(args[0], "0")
				}
				return func(context.Context) error {
					if s.passed {
						return &lab.AbsentError{Reason: s.absent[len(s.absent)-1]}
					}
					if len(s.last) != 1 {
						return fmt.Errorf("expected one observation before save, have %d", len(s.last))
					}
					return s.state.Setenv(args[0], s.last[0].outcome)
				}, nil
			},
		},
	}
}

func (s *session) assert(args []string, control, must bool) (action, error) {
	e, err := parseExpectation(args)
	if err != nil {
		return nil, err
	}
	return func(context.Context) error {
		if s.passed {
			return nil
		}
		if len(s.last) == 0 {
			return errors.New("nothing was observed before this line: expected a probe, count, metric or the like")
		}
		if err := s.proxiesRun(); err != nil {
			return err
		}
		for _, o := range s.last {
			c := lab.Check{
				Claim: s.claimed(), Step: s.step(), What: o.what, Expected: e.text, Observed: o.String(),
				OK: e.meets(o), Control: control, Contradicts: e.contradicts,
			}
			s.checks = append(s.checks, c)
			s.Check(c)
			if must && !c.OK {
				return &stopError{lab.Fail, fmt.Sprintf("%s: expected %s, observed %s", o.what, e.text, o)}
			}
		}
		return nil
	}, nil
}

// claimed is the claim that a check bears on. Claims are about kube-proxy: where there is none, nothing bears on them.
func (s *session) claimed() string {
	if s.Cell.Mode == lab.NoKubeProxy {
		return ""
	}
	return s.claim
}

// observe replaces what the next assertions look at.
func (s *session) observe(o ...observation) {
	s.last, s.passed = o, false
	if s.quiet {
		return
	}
	for _, x := range o {
		s.Log(fmt.Sprintf("  %s: %s", x.what, x))
	}
}
