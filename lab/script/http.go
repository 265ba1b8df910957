package script

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"kplab/lab"
	"kplab/lab/probe"
)

// httpCommands ask HTTP servers: kube-proxy's own, above all.
func (s *session) httpCommands() map[string]command {
	return map[string]command{
		"http": {
			args:    "[-4|-6] FROM TARGET PATH",
			summary: "ask for a path over HTTP and observe what a client there sees",
			detail:  []string{"Observes what probe would; reachable has the attribute status (200, 503, ...) and says the first line of the body. TARGET: " + targetHelp + "."},
			parse: func(args []string) (action, error) {
				fams, args := takeFamilies(args)
				if len(args) != 3 || len(fams) != 1 || !strings.HasPrefix(args[2], "/") {
					return nil, errors.New("expected a host, a target and a path that begins with /")
				}
				t, err := parseTarget(args[1])
				if err != nil {
					return nil, err
				}
				return func(ctx context.Context) error { return s.http(ctx, fams[0], args[0], t, args[2]) }, nil
			},
		},
	}
}

func (s *session) http(ctx context.Context, family lab.Family, fromName string, t target, path string) error {
	from, to, err := s.ends(ctx, fromName, t, family)
	if err != nil {
		return err
	}
	ctx, cancel := s.deadline(ctx, probeDeadline+toolDeadline)
	defer cancel()
	out, answer, err := probe.HTTP(ctx, from, probe.Request{Network: "tcp", Target: to, Timeout: s.probeTimeout()}, path)
	if err != nil {
		return err
	}
	o := s.outcome("http "+familyFlag(family)+fromName+" "+t.text+path, out)
	if answer.Status != 0 {
		o.attrs["status"] = strconv.Itoa(answer.Status)
		o.attrs["body"] = answer.Body
	}
	s.observe(o)
	return nil
}
