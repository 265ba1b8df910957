package main

import (
	"cmp"
	"context"
	"errors"
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

// cellsPerCluster is what another cluster must have to do, or it costs more than it saves: it takes as long as some ten cells.
const cellsPerCluster = 20

// images returns the engines' and what each calls the nodes'.
func (r *kindRunner) images(ctx context.Context, most int) (images []*kindcluster.Images, nodes []string, err error) {
	if images, err = kindImages(ctx, r.cache, most, r.say); err != nil {
		return nil, nil, err
	}
	for _, i := range images {
		node := ""
		if r.image != "" {
			node, err = i.Pull(ctx, r.image)
		} else {
			node, err = i.Node(ctx, lab.DefaultKubeProxy)
		}
		if err != nil {
			return nil, nil, err
		}
		nodes = append(nodes, node)
	}
	return images, nodes, nil
}

// Run implements lab.Runner. Cells of one cluster share its nodes and run one at a time; each engine of the lab has a cluster of its own, and
// the clusters share the cells.
func (r *kindRunner) Run(ctx context.Context, job lab.Job, emit func(lab.Event)) error {
	images, nodes, err := r.images(ctx, max(1, min(cmp.Or(job.Parallel, lab.DefaultParallel), len(job.Cells)/cellsPerCluster)))
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
	ready := sync.OnceFunc(func() { emit(lab.Event{Type: lab.EventReady, Time: time.Now().UTC(), Machine: &host}) })
	queue := agent.NewQueue(job, host)
	errs := make([]error, len(images))
	var clusters sync.WaitGroup
	for n := range images {
		on := &kindCells{
			images: images[n], options: kindcluster.Options{Engine: images[n].Engine, Image: nodes[n], Logs: r.logs, Name: fmt.Sprint(os.Getpid())},
			defaults: r.defaults, say: r.say, queue: queue,
		}
		if n > 0 {
			on.options.Name += fmt.Sprintf("-%d", n+1)
			on.options.Logs += fmt.Sprintf("-%d", n+1)
		}
		clusters.Go(func() {
			if errs[n] = on.run(ctx, job, host, ready, emit); errs[n] != nil && len(images) > 1 && ctx.Err() == nil {
				r.say(fmt.Sprintf("the run goes on without cluster %s: %v", on.options.Name, errs[n]))
			}
		})
	}
	clusters.Wait()
	if queue.Left() > 0 || ctx.Err() != nil {
		return errors.Join(errs...)
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
	images, nodes, err := r.images(ctx, 1)
	if err != nil {
		return err
	}
	vm := r.vm
	if vm.Disk, err = images[0].Disk(ctx, nodes[0]); err != nil {
		return err
	}
	vm.Memory = kindVMMemory
	job.Cluster = &lab.ClusterJob{Image: nodes[0], Defaults: r.defaults}
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
		images: &kindcluster.Images{Engine: engine, Cache: kindcluster.FolderInDisk, Userland: machine.DiskUserland, Progress: say},
		options: kindcluster.Options{
			Engine: engine, Image: job.Cluster.Image, Name: fmt.Sprint(os.Getpid()), Slower: slower, Steps: say, Folder: kindcluster.FolderInDisk,
		},
		defaults: job.Cluster.Defaults, say: say, queue: agent.NewQueue(job, m),
	}
	return on.run(ctx, job, m, func() {}, emit)
}

// kindCells makes a cluster on this machine for cells of a queue.
type kindCells struct {
	images   *kindcluster.Images
	options  kindcluster.Options
	defaults bool // keep kind's own kube-proxy settings
	queue    *agent.Queue
	say      func(string)
}

// run calls ready when the cluster is.
func (r *kindCells) run(ctx context.Context, job lab.Job, host lab.Machine, ready func(), emit func(lab.Event)) error {
	options := r.options
	options.Mode = lab.IPTables
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
	loader := &proxyLoader{images: r.images, cluster: cluster, binaries: job.KubeProxies, archives: map[string]*proxyArchive{}}
	pause, err := loader.find(ctx, "/pause:")
	if err != nil {
		return err
	}
	if pause == "" {
		return fmt.Errorf("the nodes of image %s have no pause image, which the pods run", options.Image)
	}
	fixtures := kindenv.Options{
		Kubeconfig: cluster.Kubeconfig, PauseImage: pause, Outside: cluster.Outside, ProxyImage: loader.image, Administer: cluster.Administer,
		KindDefaults: r.defaults, Progress: r.say, Slower: options.Slower,
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
	return (&agent.Agent{NewEnv: fixture.Env}).Work(ctx, job, r.queue, host, emit)
}

// proxyLoader gives nodes of the cluster the kube-proxies that scenarios ask for on them, each once.
type proxyLoader struct {
	images   *kindcluster.Images
	cluster  *kindcluster.Cluster
	binaries map[string]string // path by version

	mu       sync.Mutex
	have     []string                 // images that every node had from the start
	archives map[string]*proxyArchive // of the others, by version
}

// proxyArchive is an image of kube-proxy that nodes are given.
type proxyArchive struct {
	image, path string
	on          map[string]bool // nodes that have it
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
func (l *proxyLoader) image(ctx context.Context, version string, nodes ...string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if image, err := l.find(ctx, "/kube-proxy:v"+version); err != nil || image != "" {
		return image, err
	}
	a, err := l.archive(version)
	if err != nil {
		return "", err
	}
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(node string) bool { return a.on[node] })
	if err := l.cluster.Load(ctx, a.path, nodes); err != nil {
		return "", err
	}
	for _, node := range nodes {
		a.on[node] = true
	}
	return a.image, nil
}

// archive makes the image of a version, once. The caller holds the lock.
func (l *proxyLoader) archive(version string) (*proxyArchive, error) {
	if a := l.archives[version]; a != nil {
		return a, nil
	}
	binary, ok := l.binaries[version]
	if !ok {
		return nil, fmt.Errorf("kube-proxy %s was not obtained for this run", version)
	}
	image, path, err := l.images.ProxyArchive(version, binary)
	if err != nil {
		return nil, err
	}
	a := &proxyArchive{image, path, map[string]bool{}}
	l.archives[version] = a
	return a, nil
}
