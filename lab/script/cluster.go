package script

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"kplab/lab"
)

// clusterDeadline bounds one step of an operator: a drain, a rollout.
const clusterDeadline = 2 * time.Minute

// clusterCommands are what an operator does to a cluster whose kube-proxies a DaemonSet runs.
func (s *session) clusterCommands() map[string]command {
	return map[string]command{
		"daemonset": {
			args:    "[mode=MODE] [version=X.Y.Z] [FIELD=VALUE ...]",
			summary: "hand kube-proxy on every node over to the cluster's DaemonSet, in the cell's mode unless told otherwise, and return when all are synced",
			detail: []string{"Its ConfigMap has the mode, and FIELDs of KubeProxyConfiguration; everything else is kubeadm's, kube-proxy's minSyncPeriod of 1 s too. " +
				"What becomes of kube-proxy then is for kubectl and configmap to say; kube-proxy sync, proxy-mode, metric and log go on to observe. Only in a cluster."},
			parse: func(args []string) (action, error) {
				p, err := parseProxyCommand(append([]string{"start"}, args...))
				if err != nil {
					return nil, err
				}
				if p.node != "" || p.mayExit || p.options.Args != nil || p.options.Env != nil {
					return nil, errors.New("a DaemonSet is configured by its ConfigMap: expected mode=, version= or fields")
				}
				return s.onCluster(func(ctx context.Context, c lab.Cluster) error { return c.HandOver(ctx, p.options) }), nil
			},
		},
		"configmap": {
			args:    "FIELD=VALUE ...",
			summary: "edit config.conf in the ConfigMap kube-proxy, as kubectl edit would, and nothing else",
			detail:  []string{"FIELD is a field of KubeProxyConfiguration (mode, nodePortAddresses, featureGates.KubeProxyIPVS, ...); the value null takes it out. Only in a cluster."},
			parse: func(args []string) (action, error) {
				set := map[string]string{}
				for _, a := range args {
					field, value, ok := strings.Cut(a, "=")
					if !ok || !fieldSyntax.MatchString(field) {
						return nil, fmt.Errorf("%q: expected FIELD=VALUE", a)
					}
					set[field] = value
				}
				if len(set) == 0 {
					return nil, errors.New("expected at least one FIELD=VALUE")
				}
				return s.onCluster(func(ctx context.Context, c lab.Cluster) error { return c.Configure(ctx, set) }), nil
			},
		},
		"mounted": {
			args:    "NODE",
			summary: "observe config.conf as the kube-proxy container on a node finds it now: the kubelet brings it up to date some time after the ConfigMap",
			parse: s.onNode(0, func(ctx context.Context, n lab.Node, _ []string) error {
				return s.onCluster(func(ctx context.Context, c lab.Cluster) error {
					text, err := c.Mounted(ctx, n.Name())
					if err != nil {
						return err
					}
					s.observe(observation{what: "mounted " + n.Name(), outcome: text, got: firstLineWith(text, "mode:")})
					return nil
				})(ctx)
			}),
		},
		"kubectl": s.clusterTool("kubectl", "run kubectl as the cluster's administrator and observe what it prints"),
		"kubeadm": s.clusterTool("kubeadm", "run kubeadm on the control plane and observe what it prints"),
	}
}

func (s *session) clusterTool(name, summary string) command {
	return command{
		args:    "[-may-fail] ARG...",
		summary: summary,
		detail:  []string{"Attribute: code. A non-zero exit status is an error of the cell unless -may-fail is given; then what it said on stderr is observed too. Only in a cluster."},
		parse: func(args []string) (action, error) {
			mayFail := len(args) > 0 && args[0] == "-may-fail"
			if mayFail {
				args = args[1:]
			}
			if len(args) == 0 {
				return nil, errors.New("expected arguments")
			}
			return s.onCluster(func(ctx context.Context, c lab.Cluster) error {
				out, err := c.Run(ctx, append([]string{name}, args...)...)
				code := 0
				var exit *lab.ExitError
				if errors.As(err, &exit) && exit.Err == nil && mayFail {
					code, err = exit.Code, nil
					out += exit.Stderr
				}
				if err != nil {
					return err
				}
				out = strings.TrimSpace(out)
				s.observe(observation{what: name + " " + strings.Join(args, " "), outcome: out, got: brief(out), attrs: map[string]string{"code": strconv.Itoa(code)}})
				return nil
			}), nil
		},
	}
}

// onCluster makes an action of something that only a cluster can do.
func (s *session) onCluster(do func(context.Context, lab.Cluster) error) action {
	return func(ctx context.Context) error {
		c := s.Env.Cluster()
		if c == nil {
			return errors.New("only a cluster has this: guard the line by [substrate:kind], or write: requires substrate:kind REASON")
		}
		ctx, cancel := s.deadline(ctx, clusterDeadline)
		defer cancel()
		return do(ctx, c)
	}
}

const briefly = 160 // bytes of what a tool printed

// brief is a tool's output as a check shows it: a dumped object would drown it.
func brief(out string) string {
	if len(out) <= briefly && !strings.Contains(out, "\n") {
		return out
	}
	first, _, _ := strings.Cut(out, "\n")
	return fmt.Sprintf("%q and more, %d lines", first[:min(len(first), briefly)], strings.Count(out, "\n")+1)
}

func firstLineWith(text, part string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			return strings.TrimSpace(line)
		}
	}
	return fmt.Sprintf("%d bytes without %q", len(text), part)
}
