package usercluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubeconfigs of clouds name these
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"kplab/lab"
)

// Cluster is a cluster as a kubeconfig names it.
type Cluster struct {
	Kubeconfig string // as given, "" for what kubectl would take
	Context    string
	Server     string
	client     kubernetes.Interface
	config     *rest.Config
}

// Connect reads a kubeconfig, as kubectl does: the file, or without one $KUBECONFIG or ~/.kube/config; the context, or without one the
// current one. It speaks to nobody yet: every error is about what was given.
func Connect(kubeconfig, context string) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	from := kubeconfig
	if from == "" {
		from = strings.Join(rules.GetLoadingPrecedence(), ", ")
	}
	raw, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	if len(raw.Contexts) == 0 {
		return nil, fmt.Errorf("no cluster is known: %s has no context; --kubeconfig names another file", from)
	}
	if context == "" {
		context = raw.CurrentContext
	}
	var known []string
	for name := range raw.Contexts {
		known = append(known, name)
	}
	slices.Sort(known)
	if context == "" {
		return nil, fmt.Errorf("%s has no current context: --context names one of %s", from, strings.Join(known, ", "))
	}
	if raw.Contexts[context] == nil {
		return nil, fmt.Errorf("%s: unknown context %q%s", from, context, lab.Suggest(context, known))
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*raw, context, &clientcmd.ConfigOverrides{}, rules).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s, context %s: %w", from, context, err)
	}
	config.QPS, config.Burst = 50, 100
	config.UserAgent = "kplab"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("%s, context %s: %w", from, context, err)
	}
	return &Cluster{Kubeconfig: kubeconfig, Context: context, Server: config.Host, client: client, config: config}, nil
}

// flags are how to name the cluster to kplab.
func (c *Cluster) flags() string {
	s := "--context " + lab.ShellWord(c.Context)
	if c.Kubeconfig != "" {
		s = "--kubeconfig " + lab.ShellWord(c.Kubeconfig) + " " + s
	}
	return s
}

// errNoTime is the cause where an API server has not answered.
var errNoTime = errors.New("the API server has not answered in time")
