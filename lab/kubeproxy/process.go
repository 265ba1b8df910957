package kubeproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"kplab/lab"
)

const (
	syncDeadline    = 20 * time.Second
	cleanupDeadline = 30 * time.Second
	termGrace       = 5 * time.Second
	quietPeriod     = 100 * time.Millisecond
	settlePeriod    = 30 * time.Millisecond // a sync that is due begins minSyncPeriod, 10 ms, after the last one
	logPatience     = 3 * time.Second

	// On the reference machine; a slow one is asked less often, or an emulated one spends a fifth of its time on being asked.
	pollLog   = time.Millisecond
	pollFirst = 3 * time.Millisecond
	pollMost  = 50 * time.Millisecond

	runFolder = "/run/kplab"
)

// Options says which kube-proxy a node runs.
type Options struct {
	Mode        lab.Mode          // where ProxyOptions names none
	Version     string            // likewise: "1.37.2"
	Binaries    map[string]string // version -> path of the binary as the node sees it
	APIServer   string            // as the node sees it: "http://127.0.0.1:6443"
	ClusterCIDR string            // see Config
	API         API               // what the API server tells of what it sends; nil if it cannot be asked
	Deadlines   lab.Deadlines
}

// Process is the kube-proxy of one node: the process that runs, and those that ran. It implements lab.Proxy. Its methods
// may be called from any goroutine.
type Process struct {
	host    Host
	options Options

	mu      sync.Mutex
	runs    []*run // all, in the order of their start
	current *run   // the last one that is not a --cleanup, nil before the first
	files   int    // configuration files written
}

var _ lab.Proxy = (*Process)(nil)

// New returns the kube-proxy of a node. Nothing runs until Start.
func New(h Host, o Options) *Process { return &Process{host: h, options: o} }

// Start implements lab.Proxy. If kube-proxy is not synced in time it is left running, so that its state can be looked at.
func (p *Process) Start(ctx context.Context, o lab.ProxyOptions) error {
	r, err := p.start(o)
	if err != nil {
		return err
	}
	return p.waitSynced(ctx, r)
}

func (p *Process) start(o lab.ProxyOptions) (*run, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil && !p.current.ended() {
		return nil, fmt.Errorf("%s: kube-proxy %s is running already (pid %d): stop it first", p.host.Name(), p.current.title, p.current.pid)
	}
	r, err := p.run(o)
	if err != nil {
		return nil, err
	}
	p.current = r
	return r, nil
}

// run starts a kube-proxy with a configuration file of its own: one that runs exits when its file is written to. The
// caller holds the mutex.
func (p *Process) run(o lab.ProxyOptions, args ...string) (*run, error) {
	mode, version := o.Mode, o.Version
	if mode == "" {
		mode = p.options.Mode
	}
	if version == "" {
		version = p.options.Version
	}
	binary, ok := p.options.Binaries[version]
	if !ok {
		known := slices.Sorted(maps.Keys(p.options.Binaries))
		return nil, fmt.Errorf("%s: kube-proxy %s is not among those given to this run: %s", p.host.Name(), version, strings.Join(known, ", "))
	}
	p.files++
	config := Config{
		Mode: mode, NodeName: p.host.Name(), ClusterCIDR: p.options.ClusterCIDR,
		Kubeconfig: runFolder + "/kubeconfig",
		Set:        o.Set,
	}
	tree, err := config.fields()
	if err != nil {
		return nil, err
	}
	configText, err := config.YAML()
	if err != nil {
		return nil, err
	}
	kubeconfigText, err := kubeconfig(p.options.APIServer)
	if err != nil {
		return nil, err
	}
	configFile := fmt.Sprintf("%s/kube-proxy-%d.yaml", runFolder, p.files)
	if err := errors.Join(p.host.WriteFile(config.Kubeconfig, kubeconfigText), p.host.WriteFile(configFile, configText)); err != nil {
		return nil, fmt.Errorf("configure kube-proxy: %w", err)
	}
	title := strings.Join(append([]string{version, string(mode)}, args...), " ")
	tracker := newTracker(p.options.API, version)
	r, err := start(p.host, title, version, binary, o.Env, slices.Concat([]string{"--config=" + configFile}, args, o.Args)...)
	if err != nil {
		return nil, err
	}
	r.tracker = tracker
	r.config = configText
	r.within = cmp.Or(o.Within, syncDeadline)
	r.address = metricsAddress(tree)
	p.runs = append(p.runs, r)
	return r, nil
}

// alive returns the process that runs.
func (p *Process) alive() (*run, error) {
	p.mu.Lock()
	r := p.current
	p.mu.Unlock()
	if r == nil {
		return nil, fmt.Errorf("%s: kube-proxy was not started", p.host.Name())
	}
	if err := r.unexpected(true); err != nil {
		return nil, err
	}
	if r.ended() {
		return nil, fmt.Errorf("%s: kube-proxy is not running", p.host.Name())
	}
	return r, nil
}

// WaitSynced implements lab.Proxy: every change that the API server had sent or had to send when it was called is in the
// kernel. It waits for 20 s or as long as Start was told, scaled to the machine; the error then says what was missing. An exit ends it at once with a
// *lab.ProxyExit.
func (p *Process) WaitSynced(ctx context.Context) error {
	r, err := p.alive()
	if err != nil {
		return err
	}
	return p.waitSynced(ctx, r)
}

func (p *Process) waitSynced(ctx context.Context, r *run) error {
	limit := p.options.Deadlines.Of(r.within)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	goal := r.tracker.goal()
	tick := time.NewTicker(p.options.Deadlines.Of(pollLog))
	defer tick.Stop()
	missing := "it has not synced once"
	var due time.Time // next scrape, unless the log tells of a sync before
	first, most := p.options.Deadlines.Of(pollFirst), p.options.Deadlines.Of(pollMost)
	pause, syncs := first, -1
	for {
		select {
		case <-r.done:
			return r.endedWhileWaiting()
		case <-ctx.Done():
			return fmt.Errorf("%s: kube-proxy %s is not synced after %s: %s; %s", r.node, r.title,
				time.Since(began).Round(time.Millisecond), missing, lastErrorIn(r.log.from(0)))
		case <-tick.C:
		}
		logged, worthwhile := r.tracker.logged(r.log, r.began, p.options.Deadlines.Of(logPatience))
		if !worthwhile || logged == syncs && time.Now().Before(due) {
			continue
		}
		syncs = logged
		var moved bool
		m, err := r.syncMetrics(ctx)
		switch {
		case err == nil:
			if missing, moved = r.tracker.step(m, r.log, goal, p.options.Deadlines.Of(quietPeriod), p.options.Deadlines.Of(settlePeriod)); missing == "" {
				return nil
			}
		case ctx.Err() == nil:
			missing = "its metrics cannot be read: " + err.Error()
		}
		if moved {
			pause = first
		}
		due = time.Now().Add(pause)
		pause = min(pause*3/2, most)
	}
}

// lastErrorIn is the last error of a log, as a clause.
func lastErrorIn(log string) string {
	errs := ErrorsIn(log)
	if len(errs) == 0 {
		return "it logged no error"
	}
	return "the last error that it logged: " + errs[len(errs)-1]
}

// Stop implements lab.Proxy. A kube-proxy that has not ended 5 s after SIGTERM is killed. It is no error if none runs; if
// one ended by itself and nobody was told yet, that is a *lab.ProxyExit.
func (p *Process) Stop(ctx context.Context) error { return p.end(ctx, syscall.SIGTERM) }

// Kill implements lab.Proxy. Errors are like Stop's.
func (p *Process) Kill(ctx context.Context) error { return p.end(ctx, syscall.SIGKILL) }

func (p *Process) end(ctx context.Context, sig syscall.Signal) error {
	p.mu.Lock()
	r := p.current
	p.mu.Unlock()
	if r == nil {
		return nil
	}
	return r.end(ctx, sig, p.options.Deadlines.Of(termGrace))
}

// Cleanup implements lab.Proxy.
func (p *Process) Cleanup(ctx context.Context, o lab.ProxyOptions) (string, error) {
	p.mu.Lock()
	r, err := p.run(o, "--cleanup")
	p.mu.Unlock()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, p.options.Deadlines.Of(cleanupDeadline))
	defer cancel()
	select {
	case <-r.done:
	case <-ctx.Done():
		err := r.end(context.WithoutCancel(ctx), syscall.SIGKILL, 0)
		return r.log.from(0), errors.Join(fmt.Errorf("%s: kube-proxy %s: %w", r.node, r.title, context.Cause(ctx)), err)
	}
	log := r.log.from(0)
	if !r.state.Success() {
		return log, r.exit()
	}
	return log, nil
}

// Running implements lab.Proxy. An exit that Start, WaitSynced, Stop, Kill or another method has returned is no news: then, as
// before the first Start and after Stop, there is no error.
func (p *Process) Running() (bool, error) {
	p.mu.Lock()
	r := p.current
	p.mu.Unlock()
	if r == nil {
		return false, nil
	}
	return !r.ended(), r.unexpected(false)
}

// Mode implements lab.Proxy.
func (p *Process) Mode(ctx context.Context) (string, error) {
	r, err := p.alive()
	if err != nil {
		return "", err
	}
	mode, err := r.get(ctx, "/proxyMode")
	return strings.TrimSpace(mode), err
}

// Metrics implements lab.Proxy. The value is a *Metrics.
func (p *Process) Metrics(ctx context.Context) (lab.Metrics, error) {
	r, err := p.alive()
	if err != nil {
		return nil, err
	}
	m, err := r.metrics(ctx)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Log implements lab.Proxy. Before what each process logged there is a line that begins with "====" and names the node,
// the version, the mode, the pid and the time of its start (UTC).
func (p *Process) Log() string {
	var b strings.Builder
	for _, r := range p.started() {
		text := r.log.from(0)
		b.WriteString(r.header())
		b.WriteString(text)
		if text != "" && !strings.HasSuffix(text, "\n") {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// Current is the process id, in the lab's pid namespace, of the process that was started last, and when it was; 0 before the
// first Start.
func (p *Process) Current() (pid int, began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return 0, time.Time{}
	}
	return p.current.pid, p.current.began
}

// Configuration is the KubeProxyConfiguration (YAML) of the process that was started last, nil before the first Start.
func (p *Process) Configuration() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return nil
	}
	return p.current.config
}

// Errors lists what the node's kube-proxies have logged as errors, each once: "file:line] message key=value ...".
func (p *Process) Errors() []string {
	var logs []string
	for _, r := range p.started() {
		logs = append(logs, r.log.from(0))
	}
	return ErrorsIn(logs...)
}

// started lists the processes, in the order of their start.
func (p *Process) started() []*run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.runs)
}
