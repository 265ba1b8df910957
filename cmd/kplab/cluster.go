package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"kplab/kindcluster/usercluster"
	"kplab/lab"
	"kplab/lab/agent"
	"kplab/lab/machine"
	"kplab/lab/plan"
	"kplab/lab/remote"
	"kplab/lab/script"
)

// clusterOptions say which cluster --substrate cluster means, and how to run there.
type clusterOptions struct {
	kubeconfig, context string
	image               string // of the pods
	yes                 bool   // nobody is asked
}

func (o *clusterOptions) add(flags *pflag.FlagSet) {
	o.addName(flags)
	flags.StringVar(&o.image, "pod-image", defaultPodImage, "with --substrate cluster: `image` of the pods, which needs no more than a shell and gunzip")
	flags.BoolVar(&o.yes, "yes", false, "with --substrate cluster: create what is needed without asking")
}

// addName adds the flags that name a cluster.
func (o *clusterOptions) addName(flags *pflag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` that names the cluster of --substrate cluster (default: $KUBECONFIG or ~/.kube/config)")
	flags.StringVar(&o.context, "context", "", "`context` of the kubeconfig (default: its current one)")
}

const defaultPodImage = "docker.io/library/busybox:1.36"

// clusterFlags are those that go with --substrate cluster only.
var clusterFlags = []string{"kubeconfig", "context", "pod-image", "yes"}

// inCluster reports whether the matrix is for a cluster that exists already. Flags that do not go together are bad input.
func inCluster(c *cobra.Command, m plan.Matrix) (bool, error) {
	in := slices.Contains(m.Substrates, lab.ClusterSubstrate)
	for _, name := range clusterFlags {
		if !in && c.Flags().Changed(name) {
			return false, usageError{fmt.Errorf("--%s goes with --substrate %s", name, lab.ClusterSubstrate)}
		}
	}
	if !in {
		return false, nil
	}
	d := plan.Default()
	for _, list := range []struct {
		flag    string
		have, d []string
	}{{"--substrate", m.Substrates, []string{lab.ClusterSubstrate}}, {"--kernel", m.Kernels, d.Kernels}, {"--kube-proxy", m.KubeProxies, d.KubeProxies}, {"--userland", m.Userlands, d.Userlands}} {
		if !slices.Equal(list.have, list.d) {
			return false, usageError{fmt.Errorf("%s %s: a cluster that exists has its kernel, kube-proxy and userland, and a run of its own: --substrate %s goes without it", list.flag, strings.Join(list.have, ","), lab.ClusterSubstrate)}
		}
	}
	for _, name := range []string{"node-image", "kind-defaults"} {
		if c.Flags().Changed(name) {
			return false, usageError{fmt.Errorf("--%s is for clusters that the lab makes: --substrate %s goes without it", name, lab.ClusterSubstrate)}
		}
	}
	return true, nil
}

// readyCluster makes a laboratory of a cluster that exists already: it looks, says what it is about to create, asks, and creates it.
func readyCluster(c *cobra.Command, m plan.Matrix, f *cellFlags, scripts []*script.Script) (_ *laboratory, err error) {
	ctx, w := c.Context(), c.ErrOrStderr()
	cluster, err := usercluster.Connect(f.cluster.kubeconfig, f.cluster.context)
	if err != nil {
		return nil, usageError{err}
	}
	outline := usercluster.Outline{Cluster: cluster, Namespace: usercluster.NewNamespace(), Image: f.cluster.image}
	var chosen []*script.Script
	for _, s := range scripts {
		if s.SubstrateUnmet(lab.ClusterSubstrate) != "" {
			outline.Left++
			continue
		}
		chosen = append(chosen, s)
		services, ports := s.Services()
		outline.Services, outline.NodePorts = max(outline.Services, services), max(outline.NodePorts, ports)
	}
	outline.Scenarios = len(chosen)
	if outline.Survey, err = cluster.Survey(ctx); err != nil {
		return nil, err
	}
	asked := askedModes(c, m)
	if err := agrees(asked, cluster, outline.Survey.Proxy); err != nil {
		return nil, err
	}
	if err := cluster.CheckAccess(ctx, outline.Namespace); err != nil {
		return nil, err
	}
	outline.Write(w)
	if err := f.cluster.agreed(ctx, os.Stdin, w); err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	fixture, err := usercluster.Prepare(ctx, cluster, outline.Survey, usercluster.Options{
		Namespace: outline.Namespace, Image: f.cluster.image, Program: program, Progress: func(line string) { fmt.Fprintln(w, line) },
	})
	if err != nil {
		return nil, err
	}
	if err := agrees(asked, cluster, fixture.Proxy); err != nil {
		return nil, errors.Join(err, fixture.Close(context.WithoutCancel(ctx)))
	}
	cell := lab.Cell{
		Mode: fixture.Proxy.Mode, KubeProxy: fixture.Proxy.Version, Substrate: lab.ClusterSubstrate, Context: cluster.Context, Kubeconfig: cluster.Kubeconfig,
		Kernel: lab.Kernel{Name: lab.ClusterSubstrate}, Userland: lab.Userland{Name: lab.ClusterSubstrate},
	}
	if f.cluster.image != defaultPodImage {
		cell.PodImage = f.cluster.image
	}
	return &laboratory{scripts: chosen, groups: []plan.Group{plan.In(cell, chosen, m.Repeat)}, parallel: 1, cluster: fixture}, nil
}

// askedModes are the modes that the user has named, none if they were left to the cluster.
func askedModes(c *cobra.Command, m plan.Matrix) []lab.Mode {
	file := c.Flags().Lookup("file")
	if c.Flags().Changed("mode") || c.Name() == "run" && file.Changed && !slices.Equal(m.Modes, lab.Modes()) {
		return m.Modes
	}
	return nil
}

// agrees is bad input if the user has named another mode than the cluster's.
func agrees(asked []lab.Mode, cluster *usercluster.Cluster, proxy usercluster.ServiceProxy) error {
	for _, mode := range asked {
		switch proxy.Mode {
		case mode, "":
		case lab.NoKubeProxy:
			return usageError{fmt.Errorf("--mode %s: the cluster of context %s has no kube-proxy (%s implements Services): leave --mode out", mode, cluster.Context, proxy.Version)}
		default:
			return usageError{fmt.Errorf("--mode %s: kube-proxy of context %s runs in %s mode, as %s says: leave --mode out, or name another cluster", mode, cluster.Context, proxy.Mode, proxy.Source)}
		}
	}
	return nil
}

// agreed asks whether to go on. Where nobody can be asked, --yes must have been given.
func (o *clusterOptions) agreed(ctx context.Context, in *os.File, w io.Writer) error {
	if o.yes {
		return nil
	}
	if !term.IsTerminal(int(in.Fd())) {
		return usageError{errors.New("there is no terminal to ask on: --yes agrees to what is said above")}
	}
	fmt.Fprint(w, "Go on? [y/N] ")
	said := make(chan string, 1)
	go func() { // ends with a line, or with the process: a terminal cannot be interrupted
		line, _ := bufio.NewReader(in).ReadString('\n')
		said <- line
	}()
	select {
	case line := <-said:
		if answer := strings.ToLower(strings.TrimSpace(line)); answer == "y" || answer == "yes" {
			return nil
		}
		return usageError{errors.New("nothing was created")}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// clusterRunner runs a job's cells in a cluster that exists already. It implements lab.Runner.
type clusterRunner struct{ fixture *usercluster.Fixture }

// Run implements lab.Runner. What the run has in the cluster is gone when it returns; Close tells once more if it is not.
func (r *clusterRunner) Run(ctx context.Context, job lab.Job, emit func(lab.Event)) error {
	defer r.fixture.Close(context.WithoutCancel(ctx))
	m := r.fixture.Machine(machine.FeatureNames())
	emit(lab.Event{Type: lab.EventReady, Time: time.Now().UTC(), Machine: &m})
	if err := (&agent.Agent{NewEnv: r.fixture.Env}).Run(ctx, job, m, emit); err != nil {
		return err
	}
	emit(lab.Event{Type: lab.EventDone, Time: time.Now().UTC()})
	return nil
}

// newPod is what kplab runs in the pods of a cluster.
func newPod() *cobra.Command {
	return &cobra.Command{
		Use: usercluster.PodVerb, Hidden: true, Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return remote.Answer(c.Context(), c.InOrStdin(), c.OutOrStdout())
		},
	}
}

// cleanCluster removes what runs that were killed have left in a cluster.
func cleanCluster(c *cobra.Command, o clusterOptions) error {
	cluster, err := usercluster.Connect(o.kubeconfig, o.context)
	if err != nil {
		return usageError{err}
	}
	removed, err := cluster.RemoveLeftovers(c.Context())
	for _, name := range removed {
		fmt.Fprintf(c.OutOrStdout(), "removed namespace %s of context %s\n", name, cluster.Context)
	}
	if err == nil && len(removed) == 0 {
		fmt.Fprintf(c.OutOrStdout(), "context %s has no namespace of a run\n", cluster.Context)
	}
	return err
}
