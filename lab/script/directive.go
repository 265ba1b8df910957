package script

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"kplab/lab"
)

// directives say what the scenario is about and where it makes sense.
func (s *session) directives() map[string]command {
	return map[string]command{
		"claim": {
			args:    "ID [SOURCE TEXT]",
			summary: "name the claim that the next checks bear on",
			detail:  []string{"SOURCE and TEXT are for claims outside the catalogue. 'claim none' ends it."},
			parse: func(args []string) (action, error) {
				if len(args) != 1 && len(args) != 3 {
					return nil, fmt.Errorf("expected a claim's id, or id, source and text; got %d words", len(args))
				}
				id := args[0]
				if s.dry && id != "none" {
					c := lab.Claim{ID: id}
					if len(args) == 3 {
						c.Source, c.Text = args[1], args[2]
					}
					s.script.addClaim(c)
				}
				return func(context.Context) error {
					if s.claim = id; id == "none" {
						s.claim = ""
					}
					return nil
				}, nil
			},
		},
		"requires": {
			args:    "CONDITION REASON",
			summary: "skip the cell where the condition does not hold",
			detail: []string{"A skip is declared: CONDITION is the floor (feature:ip_vs, kernel:>=6.1, kube-proxy:>=1.37) and REASON says why. " +
				"Guard the line where only some cells need it: [mode:nftables] requires kube-proxy:>=1.37 '...'."},
			parse: func(args []string) (action, error) {
				if len(args) != 2 {
					return nil, fmt.Errorf("expected a condition and a reason; got %d words", len(args))
				}
				if err := checkCondition(s.conditions(), strings.TrimPrefix(args[0], "!")); err != nil {
					return nil, err
				}
				if s.dry {
					s.script.Requirements = append(s.script.Requirements, Requirement{Conditions: s.conds, Needs: args[0], Reason: args[1]})
				}
				return func(context.Context) error {
					if holds, err := s.all(args[:1]); err != nil {
						return err
					} else if !holds {
						return &stopError{lab.Skip, fmt.Sprintf("needs %s: %s", args[0], args[1])}
					}
					return nil
				}, nil
			},
		},
		"parameter": {
			args:    "NAME VALUE...",
			summary: "make the scenario one for each value, whose name ends in it",
			detail:  []string{"Lines see the value as ${NAME} and as the condition [NAME:VALUE]. Names and values are lower-case words. Several parameters are multiplied out."},
			parse: func(args []string) (action, error) {
				if len(args) < 2 || len(s.conds) > 0 || !parameterLine.MatchString("parameter "+strings.Join(args, " ")) {
					return nil, errors.New("expected a name and values in lower-case words, unquoted and without a condition before")
				}
				if known := (&session{dry: s.dry}).conditions(); known[args[0]] != nil {
					return nil, fmt.Errorf("%q is a condition already", args[0])
				}
				return func(context.Context) error { return nil }, nil
			},
		},
		"end": {
			args:    "REASON",
			summary: "end the script here, with what was checked so far",
			detail:  []string{"It is for a guarded line, where the rest has no place: [substrate:cluster] end 'the rest restarts kube-proxy'."},
			parse: func(args []string) (action, error) {
				if len(args) != 1 {
					return nil, fmt.Errorf("expected a reason; got %d words", len(args))
				}
				if s.dry && len(s.conds) == 0 {
					return nil, errors.New("expected a condition before it: nothing that follows could ever run")
				}
				return func(context.Context) error { return &stopError{lab.Pass, args[0]} }, nil
			},
		},
		"floor": {
			args:    "off",
			summary: "run the cells also below the floor of their mode (nftables: kernel 5.13; ipvs: a kernel with IP_VS)",
			parse: func(args []string) (action, error) {
				if len(args) != 1 || args[0] != "off" {
					return nil, fmt.Errorf("expected off")
				}
				s.script.FloorOff = true
				return func(context.Context) error { return nil }, nil
			},
		},
	}
}
