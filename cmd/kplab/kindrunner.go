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

// kindRunner runs a job's cells on a cluster that it makes for them, on this kernel. It implements lab.Runner.
type kindRunner struct {
	cache    string // the --cache flag
	image    string // anybody's, "" for the one that the lab builds
	defaults bool   // keep kind's own kube-proxy settings
	logs     string // folder for the nodes' logs if there is no cluster
	say      func(string)
}

// images returns the engine's, and the nodes'.
func (r *kindRunner) images(ctx context.Context) (images *kindcluster.Images, node string, err error) {
	if images, err = kindImages(ctx, r.cache, r.say); err != nil {
		return nil, "", err
	}
	if r.image != "" {
		node, err = images.Pull(ctx, r.image)
		return images, node, err
	}
	node, err = images.Node(ctx, lab.DefaultKubeProxy)
	return images, node, err
}

// Run implements lab.Runner.
func (r *kindRunner) Run(ctx context.Context, job lab.Job, emit func(lab.Event)) error {
	images, image, err := r.images(ctx)
	if err != nil {
		return err
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
	job.Cluster = &lab.ClusterJob{Image: image, Defaults: r.defaults}
	on := &kindCells{images: images, options: kindcluster.Options{Engine: images.Engine, Logs: r.logs}, say: r.say}
	ready := func() { emit(lab.Event{Type: lab.EventReady, Time: time.Now().UTC(), Machine: &host}) }
	if err := on.run(ctx, job, host, ready, emit); err != nil {
		return err
	}
	emit(lab.Event{Type: lab.EventDone, Time: time.Now().UTC()})
	return nil
}

// kindVMRunner runs a job's cells on a cluster inside a VM of another kernel. It implements lab.Runner.
type kindVMRunner struct {
	kindRunner
	vm machine.VM
}

// kindVMMemory is what three nodes need, in MiB.
const kindVMMemory = 8192

// Run implements lab.Runner.
func (r *kindVMRunner) Run(ctx context.Context, job lab.Job, emit func(lab.Event)) error {
	images, image, err := r.images(ctx)
	if err != nil {
		return err
	}
	vm := r.vm
	if vm.Disk, err = images.Disk(ctx, image); err != nil {
		return err
	}
	vm.Memory = kindVMMemory
	job.Cluster = &lab.ClusterJob{Image: image, Defaults: r.defaults}
	return vm.Run(ctx, job, emit)
}

// kindGuest runs a job's cells inside such a VM: it starts an engine on the disk and makes the cluster.
func kindGuest(ctx context.Context, job lab.Job, m lab.Machine, emit func(lab.Event)) error {
	say := func(line string) { emit(lab.Event{Type: lab.EventLog, Time: time.Now().UTC(), Message: line}) }
	slower := lab.Deadlines{Unit: m.Unit}
	if err := os.Setenv("PATH", kindcluster.ProgramsInDisk+":"+os.Getenv("PATH")); err != nil {
		return err
	}
	start := time.Now()
	engine, err := kindcluster.StartEngine(ctx, kindcluster.FolderInDisk, machine.DiskUserland+"/init", slower)
	if err != nil {
		return err
	}
	say(fmt.Sprintf("the VM's engine answers: %s", time.Since(start).Round(100*time.Millisecond)))
	start = time.Now()
	if err := engine.LoadImage(ctx, kindcluster.ArchiveInDisk); err != nil {
		return err
	}
	say(fmt.Sprintf("the VM's engine has the node image: %s", time.Since(start).Round(100*time.Millisecond)))
	on := &kindCells{
		images:  &kindcluster.Images{Engine: engine, Cache: kindcluster.FolderInDisk, Userland: machine.DiskUserland, Progress: say},
		options: kindcluster.Options{Engine: engine, Slower: slower, Steps: say, Folder: kindcluster.FolderInDisk}, say: say,
	}
	return on.run(ctx, job, m, func() {}, emit)
}

// kindCells makes a cluster on this machine for a job's cells.
type kindCells struct {
	images  *kindcluster.Images
	options kindcluster.Options
	say     func(string)
}

// run calls ready when the cluster is.
func (r *kindCells) run(ctx context.Context, job lab.Job, host lab.Machine, ready func(), emit func(lab.Event)) error {
	options := r.options
	options.Name, options.Image, options.Mode = fmt.Sprint(os.Getpid()), job.Cluster.Image, lab.IPTables
	start := time.Now()
	cluster, err := kindcluster.Create(ctx, options)
	if err != nil {
		return err
	}
	defer func() {
		if err := cluster.Delete(context.WithoutCancel(ctx)); err != nil {
			r.say(fmt.Sprintf("delete the cluster %s: %v; kplab clean tries again", cluster.Name, err))
		}
	}()
	r.say(fmt.Sprintf("cluster %s is ready: %s", cluster.Name, time.Since(start).Round(100*time.Millisecond)))
	loader := &proxyLoader{images: r.images, cluster: cluster, binaries: job.KubeProxies}
	pause, err := loader.find(ctx, "/pause:")
	if err != nil {
		return err
	}
	if pause == "" {
		return fmt.Errorf("the nodes of image %s have no pause image, which the pods run", options.Image)
	}
	fixtures := kindenv.Options{
		Kubeconfig: cluster.Kubeconfig, PauseImage: pause, Outside: cluster.Outside, ProxyImage: loader.image, Administer: cluster.Administer,
		KindDefaults: job.Cluster.Defaults, Progress: r.say, Slower: options.Slower,
	}
	fixtures.ControlPlane = kindenv.Node(cluster.ControlPlane)
	for _, w := range cluster.Workers {
		fixtures.Workers = append(fixtures.Workers, kindenv.Node(w))
	}
	fixture, err := kindenv.Prepare(ctx, fixtures)
	if err != nil {
		for line := range strings.Lines(cluster.Said(ctx)) {
			r.say(strings.TrimSpace(line))
		}
		return err
	}
	defer fixture.Close()
	ready()
	job.Parallel = 1 // the cells share the cluster's nodes
	return (&agent.Agent{NewEnv: fixture.Env}).Run(ctx, job, host, emit)
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
