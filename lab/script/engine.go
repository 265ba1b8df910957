package script

import (
	"context"
	"fmt"
	"strings"

	"rsc.io/script"
)

// command is one word of the vocabulary. parse reads the arguments without touching anything (that is how a script is
// checked) and returns what to do.
type command struct {
	args    string
	summary string
	detail  []string
	parse   func(args []string) (action, error)
}

// action does a command's work.
type action func(ctx context.Context) error

// vocabulary is every command by name.
func (s *session) vocabulary() map[string]command {
	all := map[string]command{}
	for _, group := range []map[string]command{
		s.directives(), s.objectCommands(), s.proxyCommands(), s.probeCommands(), s.httpCommands(), s.connectionCommands(), s.streamCommands(), s.seriesCommands(), s.stateCommands(), s.leftoverCommands(), s.clusterCommands(),
		s.nftSetCommands(), s.awaitCommands(), s.readinessCommands(), s.assertions(),
	} {
		for name, c := range group {
			all[name] = c
		}
	}
	return all
}

func (s *session) engine() *script.Engine {
	e := &script.Engine{Cmds: map[string]script.Cmd{}, Conds: s.conditions()}
	for name, c := range s.vocabulary() {
		usage := script.CmdUsage{Summary: c.summary, Args: c.args, Detail: c.detail}
		e.Cmds[name] = script.Command(usage, func(state *script.State, args ...string) (script.WaitFunc, error) {
			s.state = state
			if s.dry {
				s.script.Steps = append(s.script.Steps, Step{Line: s.at, Conditions: s.conds, Command: name, Args: args})
			}
			do, err := c.parse(args)
			if err != nil {
				return nil, fmt.Errorf("%w\n\tusage: %s %s", err, name, c.args)
			}
			if s.dry {
				return nil, nil
			}
			return nil, do(state.Context())
		})
	}
	return e
}

// Word documents a command or condition of the vocabulary.
type Word struct{ Name, Syntax, Summary, Detail string }

// Commands documents every command, for the docs and kplab show.
func Commands() (words []Word) {
	for name, c := range (&session{dry: true, script: &Script{}}).vocabulary() {
		words = append(words, Word{name, name + " " + c.args, c.summary, strings.Join(c.detail, "\n")})
	}
	return words
}

// Conditions documents every condition.
func Conditions() (words []Word) {
	for name, c := range (&session{dry: true, script: &Script{}}).conditions() {
		words = append(words, Word{Name: name, Syntax: "[" + name + ":...]", Summary: c.Usage().Summary})
	}
	return words
}
