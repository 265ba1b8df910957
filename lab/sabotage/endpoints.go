package sabotage

import (
	"context"
	"errors"
	"regexp"
)

// serverPod matches the names of the standard env's server pods.
var serverPod = regexp.MustCompile(`^s\d+$`)

// armDeadEndpoints has the server pods refuse everything, rather than drop it: a refusal is what most scenarios expect where
// nothing is to answer, and so the harder test.
func armDeadEndpoints(ctx context.Context, e *Env) error {
	for _, name := range e.Hosts() {
		if !serverPod.MatchString(name) {
			continue
		}
		pod, err := e.Host(name)
		if err != nil {
			return e.failed(err)
		}
		for _, iptables := range []string{"iptables", "ip6tables"} {
			for _, rule := range [][]string{
				{"-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset"},
				{"!", "-p", "tcp", "-j", "REJECT"},
			} {
				if _, err := pod.Run(ctx, append([]string{iptables, "-A", "INPUT", "!", "-i", "lo"}, rule...)...); err != nil {
					return e.failed(err)
				}
			}
		}
		e.bite()
	}
	if e.Done().Bites == 0 {
		return e.failed(errors.New("the env has no server pods"))
	}
	return nil
}
