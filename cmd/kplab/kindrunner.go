package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"kplab/kindcluster"
	"kplab/kindcluster/kindenv"
	"kplab/lab"
	"kplab/lab/agent"
	"kplab/lab/machine"
)

// kindRunner runs a job's cells on a cluster that it makes for them. It implements lab.Runner.
type kindRunner struct {
	cache    string // the --cache flag
	image    string // "" for the one that the lab builds
	defaults bool   // keep kind's own kube-proxy settings
	logs     string // folder for the nodes' logs if there is no cluster
	say      func(string)
}

// Run implements lab.Runner.
func (r *kindRunner) Run(ctx context.Context, job lab.Job, emit func(lab.Event)) error {
	images, err := kindImages(ctx, r.cache, r.say)
	if err != nil {
		return err
	}
	image := r.image
	if image == "" {
		if image, err = images.Node(ctx, lab.DefaultKubeProxy); err != nil {
			return err
		}
	}
	// What the kernel can do is the same in every namespace; a sandbox finds it out and leaves nothing.
	var host lab.Machine
	looking := lab.Job{Root: job.Root, Accelerator: machine.AcceleratorHost}
	if err := (&machine.Sandbox{}).Run(ctx, looking, func(e lab.Event) {
		if e.Machine != nil {
			host = *e.Machine
		}
	}); err != nil {
		return err
	}
	start := time.Now()
	cluster, err := kindcluster.Create(ctx, kindcluster.Options{
		Engine: images.Engine, Name: fmt.Sprint(os.Getpid()), Image: image, Mode: lab.IPTables,
		Logs: r.logs,
	})
	if err != nil {
		return err
	}
	defer func() {
		if err := cluster.Delete(context.WithoutCancel(ctx)); err != nil {
			r.say(fmt.Sprintf("delete the cluster %s: %v; kplab clean tries again", cluster.Name, err))
		}
	}()
	r.say(fmt.Sprintf("cluster %s is ready: %s", cluster.Name, time.Since(start).Round(100*time.Millisecond)))
	loader := &proxyLoader{images: images, cluster: cluster, binaries: job.KubeProxies}
	pause, err := loader.find(ctx, "/pause:")
	if err != nil {
		return err
	}
	if pause == "" {
		return fmt.Errorf("the nodes of image %s have no pause image, which the pods run", image)
	}
	options := kindenv.Options{
		Kubeconfig: cluster.Kubeconfig, PauseImage: pause, Outside: cluster.Outside, ProxyImage: loader.image, Administer: cluster.Administer,
		KindDefaults: r.defaults, Progress: r.say,
	}
	for _, w := range cluster.Workers {
		options.Workers = append(options.Workers, kindenv.Node{Name: w.Name, PID: w.PID})
	}
	fixture, err := kindenv.Prepare(ctx, options)
	if err != nil {
		return err
	}
	defer fixture.Close()
	emit(lab.Event{Type: lab.EventReady, Time: time.Now().UTC(), Machine: &host})
	job.Parallel = 1 // the cells share the cluster's nodes
	if err := (&agent.Agent{NewEnv: fixture.Env}).Run(ctx, job, host, emit); err != nil {
		return err
	}
	emit(lab.Event{Type: lab.EventDone, Time: time.Now().UTC()})
	return nil
}

// proxyLoader gives the cluster's nodes the kube-proxies that scenarios ask for, each once.
type proxyLoader struct {
	images   *kindcluster.Images
	cluster  *kindcluster.Cluster
	binaries map[string]string // path by version

	mu   sync.Mutex
	have []string
}

// find returns the first image of the nodes whose name has the part, "" if none has. The caller holds the lock, or is alone.
func (l *proxyLoader) find(ctx context.Context, part string) (_ string, err error) {
	if l.have == nil {
		if l.have, err = l.cluster.Images(ctx); err != nil {
			return "", err
		}
	}
	if i := slices.IndexFunc(l.have, func(image string) bool { return strings.Contains(image, part) }); i >= 0 {
		return l.have[i], nil
	}
	return "", nil
}

// image implements kindenv.Options.ProxyImage.
func (l *proxyLoader) image(ctx context.Context, version string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if image, err := l.find(ctx, "/kube-proxy:v"+version); err != nil || image != "" {
		return image, err
	}
	binary, ok := l.binaries[version]
	if !ok {
		return "", fmt.Errorf("kube-proxy %s was not obtained for this run", version)
	}
	image, path, err := l.images.ProxyArchive(version, binary)
	if err != nil {
		return "", err
	}
	if err := l.cluster.Load(ctx, path); err != nil {
		return "", err
	}
	l.have = append(l.have, image)
	return image, nil
}
