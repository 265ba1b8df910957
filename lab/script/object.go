package script

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kplab/lab"
	"kplab/lab/manifest"
)

// namespace that objects without one live in.
const namespace = corev1.NamespaceDefault

// objectCommands change what the API server holds.
func (s *session) objectCommands() map[string]command {
	return map[string]command{
		"apply": {
			args:    "[-no-wait] FILE...",
			summary: "create or update the objects of these files, and wait until every running kube-proxy has synced them",
			detail: []string{"In the files " + addressHelp + ".",
				"With -no-wait, for what kube-proxy cannot sync, it returns at once."},
			parse: func(args []string) (action, error) {
				noWait := len(args) > 0 && args[0] == "-no-wait"
				if noWait {
					args = args[1:]
				}
				if len(args) == 0 {
					return nil, errors.New("expected at least one file of the archive")
				}
				for _, name := range args {
					if _, ok := s.script.files[name]; !ok {
						return nil, fmt.Errorf("no file %q in the archive%s", name, lab.Suggest(name, s.script.fileNames()))
					}
				}
				return func(ctx context.Context) error {
					vars, err := s.addressVariables()
					if err != nil {
						return err
					}
					for _, name := range args {
						text, err := expandAddresses(s.script.files[name], vars)
						if err != nil {
							return fmt.Errorf("%s:%d (%s): %w", s.script.File, s.script.lines[name], name, err)
						}
						objects, err := manifest.Decode(s.script.File, s.script.lines[name], text)
						if err != nil {
							return err
						}
						if err := s.Env.Apply(ctx, objects); err != nil {
							return fmt.Errorf("%s:%d (%s): %w", s.script.File, s.script.lines[name], name, err)
						}
					}
					if noWait {
						return nil
					}
					return s.waitSynced(ctx)
				}, nil
			},
		},
		"delete": {
			args:    "KIND/NAME...",
			summary: "delete objects, and wait until every running kube-proxy has synced it",
			parse: func(args []string) (action, error) {
				kinds := map[string]string{"service": "Service", "endpointslice": "EndpointSlice", "pod": "Pod", "node": "Node"}
				for _, a := range args {
					kind, name, ok := strings.Cut(a, "/")
					if !ok || kinds[kind] == "" || name == "" {
						return nil, fmt.Errorf("%q: expected service/NAME, endpointslice/NAME, pod/NAME or node/NAME", a)
					}
				}
				if len(args) == 0 {
					return nil, errors.New("expected at least one object")
				}
				return func(ctx context.Context) error {
					for _, a := range args {
						kind, name, _ := strings.Cut(a, "/")
						if err := s.Env.Delete(ctx, kinds[kind], namespace, name); err != nil {
							return err
						}
					}
					return s.waitSynced(ctx)
				}, nil
			},
		},
		"serve": {
			args:    "HOST NETWORK PORT",
			summary: "have a host listen on a port, outside Kubernetes' knowledge, and answer probes with its name",
			parse: func(args []string) (action, error) {
				if len(args) != 3 || !slices.Contains(networks, args[1]) {
					return nil, fmt.Errorf("expected a host, one of %s and a port", strings.Join(networks, ", "))
				}
				port, err := parsePort(args[2])
				if err != nil {
					return nil, err
				}
				return func(ctx context.Context) error { return s.Env.Serve(ctx, args[0], args[1], port) }, nil
			},
		},
	}
}

func (s *Script) fileNames() (names []string) {
	for name := range s.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// waitSynced waits for every kube-proxy that runs.
func (s *session) waitSynced(ctx context.Context) error {
	ctx, cancel := s.deadline(ctx, lab.SyncDeadline)
	defer cancel()
	for _, n := range s.Env.Nodes() {
		running, err := n.Proxy().Running()
		if err != nil {
			return err
		}
		if running {
			if err := n.Proxy().WaitSynced(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}
