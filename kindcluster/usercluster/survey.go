package usercluster

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"kplab/lab"
)

// surveyDeadline bounds looking at a cluster.
const surveyDeadline = 30 * time.Second

// Survey is what a cluster is like before anything is created in it.
type Survey struct {
	Nodes [2]Node // n1 and n2
	Proxy ServiceProxy
}

// Survey looks at the cluster.
func (c *Cluster) Survey(ctx context.Context) (Survey, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, surveyDeadline, errNoTime)
	defer cancel()
	nodes, err := c.chooseNodes(ctx)
	if err != nil {
		return Survey{}, err
	}
	proxy, err := c.findServiceProxy(ctx, nodes)
	return Survey{Nodes: nodes, Proxy: proxy}, err
}

// Outline is what a run is about to do in a cluster.
type Outline struct {
	Cluster   *Cluster
	Survey    Survey
	Namespace string
	Image     string // of the pods
	Scenarios int
	Left      int // scenarios that are not run
	Services  int // at a time, at most
	NodePorts int // of those
}

// Write prints the outline for somebody who is to agree to it.
func (o Outline) Write(w io.Writer) {
	n := o.Survey.Nodes
	fmt.Fprintf(w, "Cluster of context %s (%s)\n", o.Cluster.Context, o.Cluster.Server)
	for i, node := range n {
		fmt.Fprintf(w, "  n%d is node %s, kernel %s, kubelet %s\n", i+1, node.Name, node.Release, node.Kubelet)
	}
	if n[0].Release != n[1].Release {
		fmt.Fprintf(w, "  The nodes' kernels differ: results are under that of n1.\n")
	}
	fmt.Fprintf(w, "  %s.\n", o.Survey.Proxy.sentence())
	if note := o.Survey.Proxy.Note; note != "" {
		fmt.Fprintf(w, "  %s.\n", strings.ToUpper(note[:1])+note[1:])
	}
	fmt.Fprintf(w, `Will be created, and removed at the end:
  namespace %s, labelled %s, in which Pod Security admits the pods below
  6 pods of image %s: s1 and c1 on n1, s2 and c2 on n2, and one on each in the node's own network (hostNetwork), all with NET_RAW
  up to %d Services at a time, up to %d node ports among them, for %d %s
Nothing else in the cluster is changed.
`, o.Namespace, runLabel, o.Image, o.Services+1, o.NodePorts, o.Scenarios, plural(o.Scenarios, "scenario"))
	if o.Left > 0 {
		verb := map[bool]string{true: "acts on nodes or kube-proxy and is", false: "act on nodes or kube-proxy and are"}[o.Left == 1]
		fmt.Fprintf(w, "%d %s %s not run on a cluster that already exists.\n", o.Left, plural(o.Left, "scenario"), verb)
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// sentence says what implements Services.
func (p ServiceProxy) sentence() string {
	switch p.Mode {
	case lab.NoKubeProxy:
		return fmt.Sprintf("No kube-proxy (%s): %s implements Services; checks about kube-proxy's modes are left out", p.Source, p.Version)
	case "":
		return fmt.Sprintf("kube-proxy %s, whose mode is asked on the nodes", p.Version)
	}
	return fmt.Sprintf("kube-proxy %s in %s mode, as %s says", p.Version, p.Mode, p.Source)
}
