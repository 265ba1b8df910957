package script

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"kplab/lab"
)

// unsetMode is how a script says that the configuration names no mode.
const unsetMode = "unset"

var proxyVerbs = []string{"start", "restart", "stop", "kill", "cleanup", "sync"}

// proxyCommand is a parsed kube-proxy line.
type proxyCommand struct {
	verb    string
	node    string // "" = every node
	options lab.ProxyOptions
	mayExit bool
}

var (
	versionSyntax = regexp.MustCompile(`^\d+\.\d+\.\d+$`)
	fieldSyntax   = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9.]*$`)
)

func parseProxyCommand(args []string) (*proxyCommand, error) {
	if len(args) == 0 || !slices.Contains(proxyVerbs, args[0]) {
		word := ""
		if len(args) > 0 {
			word = args[0]
		}
		return nil, fmt.Errorf("unknown verb %q%s", word, lab.Suggest(word, proxyVerbs))
	}
	p := &proxyCommand{verb: args[0], options: lab.ProxyOptions{Set: map[string]string{}}}
	for _, a := range args[1:] {
		if a == "-may-exit" {
			p.mayExit = true
			continue
		}
		if strings.HasPrefix(a, "--") {
			p.options.Args = append(p.options.Args, a)
			continue
		}
		key, value, ok := strings.Cut(a, "=")
		if !ok {
			return nil, fmt.Errorf("%q: expected KEY=VALUE", a)
		}
		switch {
		case key == "node":
			p.node = value
		case key == "mode" && value == unsetMode:
			p.options.Set["mode"] = ""
			p.options.Mode = lab.IPTables // what an unset mode means up to 1.39 (KEP-5343)
		case key == "mode":
			m, err := lab.ParseMode(value)
			if err != nil {
				return nil, err
			}
			p.options.Mode = m
		case key == "version":
			if !versionSyntax.MatchString(value) {
				return nil, fmt.Errorf("version %q: expected X.Y.Z", value)
			}
			p.options.Version = value
		case strings.HasPrefix(key, "env:"):
			p.options.Env = append(p.options.Env, strings.TrimPrefix(a, "env:"))
		case fieldSyntax.MatchString(key):
			p.options.Set[key] = value
		default:
			return nil, fmt.Errorf("%q: expected node=, mode=, version=, env:NAME=, or a field of KubeProxyConfiguration (nodePortAddresses=, ipvs.scheduler=, ...)", a)
		}
	}
	return p, nil
}

// proxyCommands drive kube-proxy.
func (s *session) proxyCommands() map[string]command {
	return map[string]command{
		"kube-proxy": {
			args:    "start|restart|stop|kill|cleanup|sync [node=NODE] [mode=MODE] [version=X.Y.Z] [-may-exit] [env:NAME=VALUE ...] [--FLAG ...] [FIELD=VALUE ...]",
			summary: "drive kube-proxy on every node, or on one",
			detail: []string{
				"start and restart run the cell's version in the cell's mode unless told otherwise (mode=unset: a configuration without a mode), with FIELDs of KubeProxyConfiguration set, and return when it is synced: " +
					"the rules for all that the API server holds are in the kernel. A restart begins from defaults again. stop sends SIGTERM, kill SIGKILL; what was programmed stays. cleanup runs kube-proxy --cleanup.",
				"Observes running, or exited with the attribute code. A kube-proxy that exits is an error of the cell unless -may-exit is given.",
			},
			parse: func(args []string) (action, error) {
				p, err := parseProxyCommand(args)
				if err != nil {
					return nil, err
				}
				return func(ctx context.Context) error { return s.driveProxy(ctx, p) }, nil
			},
		},
		"proxy-mode": {
			args:    "NODE",
			summary: "observe the mode that kube-proxy itself says it runs in (/proxyMode)",
			parse: s.onNode(0, func(ctx context.Context, n lab.Node, _ []string) error {
				mode, err := n.Proxy().Mode(ctx)
				if err != nil {
					return err
				}
				s.observe(observation{what: "proxy-mode " + n.Name(), outcome: mode})
				return nil
			}),
		},
		"log": {
			args:    "NODE",
			summary: "observe what the node's kube-proxies have logged so far",
			parse: s.onNode(0, func(_ context.Context, n lab.Node, _ []string) error {
				log := n.Proxy().Log()
				s.observe(observation{what: "log " + n.Name(), outcome: log, got: fmt.Sprintf("%d lines", strings.Count(log, "\n"))})
				return nil
			}),
		},
		"metric": {
			args:    "NODE NAME [LABEL=VALUE ...]",
			summary: "observe the sum of a metric's samples in kube-proxy's /metrics, or absent",
			parse: s.onNode(1, func(ctx context.Context, n lab.Node, args []string) error {
				labels := map[string]string{}
				for _, l := range args[1:] {
					k, v, ok := strings.Cut(l, "=")
					if !ok {
						return fmt.Errorf("%q: expected LABEL=VALUE", l)
					}
					labels[k] = v
				}
				m, err := n.Proxy().Metrics(ctx)
				if err != nil {
					return err
				}
				o := observation{what: "metric " + n.Name() + " " + strings.Join(args, " "), outcome: "absent"}
				if v, present := m.Sum(args[0], labels); present {
					o.outcome = strconv.FormatFloat(v, 'f', -1, 64)
				}
				s.observe(o)
				return nil
			}),
		},
		"metric-names": {
			args:    "NODE PREFIX",
			summary: "observe the names of the metrics in kube-proxy's /metrics that begin with PREFIX, sorted, with spaces between",
			parse: s.onNode(1, func(ctx context.Context, n lab.Node, args []string) error {
				m, err := n.Proxy().Metrics(ctx)
				if err != nil {
					return err
				}
				names := slices.DeleteFunc(m.Names(), func(name string) bool { return !strings.HasPrefix(name, args[0]) })
				o := observation{what: "metric-names " + n.Name() + " " + args[0], outcome: strings.Join(names, " ")}
				o.got = fmt.Sprintf("%d names: %s", len(names), o.outcome)
				s.observe(o)
				return nil
			}),
		},
	}
}

// onNode makes a command's parser whose first argument is a node, with at least more others.
func (s *session) onNode(more int, do func(context.Context, lab.Node, []string) error) func([]string) (action, error) {
	return func(args []string) (action, error) {
		if len(args) < 1+more {
			return nil, fmt.Errorf("expected a node and %d more words, got %d", more, len(args))
		}
		return func(ctx context.Context) error {
			n, err := s.node(args[0])
			if err != nil {
				return err
			}
			ctx, cancel := s.deadline(ctx, toolDeadline)
			defer cancel()
			return do(ctx, n, args[1:])
		}, nil
	}
}

func (s *session) node(name string) (lab.Node, error) {
	names := []string{}
	for _, n := range s.Env.Nodes() {
		if n.Name() == name {
			return n, nil
		}
		names = append(names, n.Name())
	}
	return nil, fmt.Errorf("unknown node %q%s", name, lab.Suggest(name, names))
}

// driveProxy runs the verb on the nodes at the same time.
func (s *session) driveProxy(ctx context.Context, p *proxyCommand) error {
	ctx, cancel := s.deadline(ctx, lab.SyncDeadline)
	defer cancel()
	nodes := s.Env.Nodes()
	if p.node != "" {
		n, err := s.node(p.node)
		if err != nil {
			return err
		}
		nodes = []lab.Node{n}
	}
	seen := make([]observation, len(nodes))
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { seen[i], errs[i] = s.driveNode(ctx, p, n) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.observe(seen...)
	return nil
}

func (s *session) driveNode(ctx context.Context, p *proxyCommand, n lab.Node) (observation, error) {
	o := observation{what: "kube-proxy " + p.verb + " " + n.Name(), outcome: "exited"}
	proxy := n.Proxy()
	var err error
	switch p.verb {
	case "start":
		err = proxy.Start(ctx, p.options)
	case "restart":
		if err = proxy.Stop(ctx); err == nil {
			err = proxy.Start(ctx, p.options)
		}
	case "stop":
		err = proxy.Stop(ctx)
	case "kill":
		err = proxy.Kill(ctx)
	case "cleanup":
		_, err = proxy.Cleanup(ctx, p.options)
		o.attrs = map[string]string{"code": "0"}
	case "sync":
		err = proxy.WaitSynced(ctx)
	}
	var exit *lab.ProxyExit
	if errors.As(err, &exit) && p.mayExit {
		o.got = fmt.Sprintf("exited (status %d: %s)", exit.Code, exit.Last)
		o.attrs = map[string]string{"code": strconv.Itoa(exit.Code), "said": exit.Last}
		return o, nil
	}
	if err != nil {
		return o, err
	}
	if p.verb == "start" || p.verb == "restart" || p.verb == "sync" {
		o.outcome = "running"
		return o, s.checkMode(ctx, p, n)
	}
	return o, nil
}

// checkMode makes sure that what runs is what the cell says: a column of the matrix must not lie about its mode.
func (s *session) checkMode(ctx context.Context, p *proxyCommand, n lab.Node) error {
	if _, unset := p.options.Set["mode"]; unset {
		return nil // what runs then is for the script to find out
	}
	want := p.options.Mode
	if want == "" {
		want = s.Cell.Mode
	}
	if p.verb == "sync" {
		return nil
	}
	got, err := n.Proxy().Mode(ctx)
	if err != nil {
		return err
	}
	if got != string(want) {
		return fmt.Errorf("kube-proxy on %s was started in %s mode and says it runs in %s mode", n.Name(), want, got)
	}
	return nil
}
