package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kplab/kindcluster/usercluster"
	"kplab/lab"
	"kplab/lab/kubeproxy"
	"kplab/lab/machine"
	"kplab/lab/plan"
	"kplab/lab/script"
)

// laboratory is everything that cells need before the first of them runs: it is fetched and built up front, so that a run
// does not stop half way for want of a binary.
type laboratory struct {
	cache    machine.Cache
	proxies  *kubeproxy.Source
	scripts  []*script.Script
	groups   []plan.Group
	binaries map[string]kubeproxy.Binary // by version
	roots    map[string]string           // by userland
	kernels  map[string]machine.Kernel   // by name, VM kernels only
	absent   map[string]error            // VM kernels that could not be had, by name
	parallel int
	kind     kindOptions
	cluster  *usercluster.Fixture // of a cluster that exists already
	shard    plan.Shard
	shell    lab.ShellWhen // on the host kernel
	dir      string        // of the run's results
	sabotage string        // what is broken in every cell, "" for nothing
}

// kindOptions say what clusters are like.
type kindOptions struct {
	image    string // of the nodes, "" for the one that the lab builds
	defaults bool   // keep kind's own kube-proxy settings
}

// cacheRoot is the folder that the --cache flag, $KPLAB_CACHE or the user's cache folder gives.
func cacheRoot(flag string) (string, error) {
	if flag == "" {
		flag = os.Getenv("KPLAB_CACHE")
	}
	if flag != "" {
		return filepath.Abs(flag)
	}
	return machine.DefaultCacheRoot()
}

// prepare fetches what the matrix needs and plans its cells. say takes progress lines.
func prepare(ctx context.Context, m plan.Matrix, scripts []*script.Script, cacheDir string, say func(string)) (*laboratory, error) {
	root, err := cacheRoot(cacheDir)
	if err != nil {
		return nil, err
	}
	l := &laboratory{
		cache:    machine.Cache{Root: root, Progress: say},
		proxies:  &kubeproxy.Source{Cache: filepath.Join(root, "kube-proxy"), Progress: say},
		scripts:  scripts,
		binaries: map[string]kubeproxy.Binary{},
		roots:    map[string]string{},
		kernels:  map[string]machine.Kernel{},
		absent:   map[string]error{},
		parallel: m.Parallel,
	}
	for _, name := range m.Kernels {
		if name == plan.Auto || name == plan.Host {
			continue
		}
		if _, err := machine.ParseKernel(name); err != nil {
			return nil, usageError{err}
		}
	}
	paths, err := l.obtainProxies(ctx, &m)
	if err != nil {
		return nil, err
	}
	for _, name := range m.Userlands {
		if l.roots[name], err = l.cache.Userland(ctx, name); err != nil {
			return nil, fmt.Errorf("userland %s: %w", name, err)
		}
	}
	var host lab.Machine
	if slices.Contains(m.Kernels, plan.Auto) {
		if host, err = l.inspectHost(ctx, m.Userlands[0]); err != nil {
			return nil, err
		}
	}
	l.groups = plan.Make(m, scripts, host)
	for _, g := range l.groups {
		for i := range g.Cells {
			g.Cells[i].KubeProxyPath = paths[g.Cells[i].KubeProxy]
		}
		l.obtainKernel(ctx, g.Kernel)
	}
	return l, context.Cause(ctx)
}

// obtainKernel obtains a VM kernel, once. If it cannot be had, its machine will say why; the others can run all the same.
func (l *laboratory) obtainKernel(ctx context.Context, name string) {
	if name == plan.Host || l.kernels[name].Release != "" || l.absent[name] != nil {
		return
	}
	k, err := l.cache.Kernel(ctx, name)
	if err != nil && ctx.Err() == nil {
		l.cache.Progress(fmt.Sprintf("kernel %s: %v", name, err))
		l.absent[name] = err
		return
	}
	l.kernels[name] = k
}

// obtainProxies obtains every kube-proxy that the matrix or a script names. In the matrix, paths become the versions that
// their binaries say; the paths are returned by version.
func (l *laboratory) obtainProxies(ctx context.Context, m *plan.Matrix) (paths map[string]string, err error) {
	paths = map[string]string{}
	for _, asked := range m.KubeProxies {
		if strings.Contains(asked, "/") {
			if _, err := os.Stat(asked); err != nil {
				return nil, usageError{fmt.Errorf("kube-proxy: %w", err)}
			}
		} else if _, err := kubeproxy.ParseVersion(asked); err != nil {
			return nil, usageError{err}
		}
	}
	for i, asked := range m.KubeProxies {
		b, err := l.proxies.Obtain(ctx, asked)
		if err != nil {
			return nil, badVersion(err)
		}
		if have, ok := l.binaries[b.Version]; ok && have.Path != b.Path {
			return nil, usageError{fmt.Errorf("%s and %s are both kube-proxy %s: run them one at a time", have.Path, b.Path, b.Version)}
		}
		if strings.Contains(asked, "/") {
			paths[b.Version] = b.Path
		}
		l.binaries[b.Version], m.KubeProxies[i] = b, b.Version
	}
	for _, s := range l.scripts {
		for _, version := range s.KubeProxies() {
			if _, ok := l.binaries[version]; ok {
				continue
			}
			b, err := l.proxies.Obtain(ctx, version)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.File, badVersion(err))
			}
			l.binaries[b.Version] = b
		}
	}
	return paths, nil
}

// badVersion tells a version that does not exist (the user's fault) from one that could not be had (the lab's).
func badVersion(err error) error {
	var unknown *kubeproxy.UnknownVersionError
	if errors.As(err, &unknown) {
		return usageError{err}
	}
	return err
}

// inspectHost asks the host kernel what it can do, from inside a sandbox.
func (l *laboratory) inspectHost(ctx context.Context, userland string) (lab.Machine, error) {
	var host lab.Machine
	sandbox := &machine.Sandbox{}
	err := sandbox.Run(ctx, lab.Job{Root: l.roots[userland], Accelerator: machine.AcceleratorHost}, func(e lab.Event) {
		if e.Machine != nil {
			host = *e.Machine
		}
	})
	return host, err
}

// close removes what stands for the cells beside their results. It may be called again, and says the same.
func (l *laboratory) close(ctx context.Context) error {
	if l.cluster == nil {
		return nil
	}
	return l.cluster.Close(ctx)
}

// cells lists the planned cells, machine by machine.
func (l *laboratory) cells() (cells []lab.Cell) {
	for _, g := range l.groups {
		cells = append(cells, g.Cells...)
	}
	return cells
}

// job is what a group's machine is given. Paths are the host's; a VM's runner carries the files over.
func (l *laboratory) job(g plan.Group) lab.Job {
	job := lab.Job{
		Cells: g.Cells, Scenarios: map[string]lab.Source{}, KubeProxies: map[string]string{},
		Root: l.roots[g.Userland], Parallel: l.parallel, Accelerator: machine.AcceleratorHost,
		Sabotage: l.sabotage,
	}
	if g.Kernel == plan.Host {
		job.Shell = l.shell
	}
	for _, s := range l.scripts {
		job.Scenarios[s.Name] = lab.Source{File: s.File, Text: s.Text}
	}
	for version, b := range l.binaries {
		job.KubeProxies[version] = b.Path
	}
	return job
}

// runner is the machine that a group runs on.
func (l *laboratory) runner(ctx context.Context, g plan.Group) (lab.Runner, error) {
	if g.Substrate == lab.ClusterSubstrate {
		return &clusterRunner{l.cluster}, nil
	}
	kind := kindRunner{cache: l.cache.Root, image: l.kind.image, defaults: l.kind.defaults, logs: filepath.Join(l.dir, "kind-logs"), say: l.cache.Progress}
	switch {
	case g.Kernel == plan.Host && g.Substrate == plan.Kind:
		return &kind, nil
	case g.Kernel == plan.Host:
		return &machine.Sandbox{}, nil
	}
	if err := l.absent[g.Kernel]; err != nil {
		return nil, err
	}
	k := l.kernels[g.Kernel]
	accelerator, err := l.cache.Accelerator(ctx, k)
	if err != nil {
		return nil, err
	}
	vm := machine.VM{Kernel: k, Accelerator: accelerator}
	if g.Substrate == plan.Kind {
		return &kindVMRunner{kind, vm}, nil
	}
	return &vm, nil
}
