package sabotage

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"kplab/lab"
)

func armNoKubeProxy(_ context.Context, e *Env) error {
	all := []*absent{}
	e.replaceProxies(func(n lab.Node) lab.Proxy {
		all = append(all, &absent{env: e, node: n.Name()})
		return all[len(all)-1]
	})
	if e.cluster != nil {
		e.cluster = &proxyless{e.cluster, all}
	}
	return nil
}

// proxyless is a cluster that starts no kube-proxy and says that its DaemonSet has.
type proxyless struct {
	lab.Cluster
	nodes []*absent
}

// HandOver implements lab.Cluster.
func (c *proxyless) HandOver(ctx context.Context, o lab.ProxyOptions) error {
	for _, p := range c.nodes {
		if err := errors.Join(p.Stop(ctx), p.Start(ctx, o)); err != nil {
			return err
		}
	}
	return nil
}

// absent is a kube-proxy that is not there and says that all is well. It logs nothing and has no metrics.
type absent struct {
	env  *Env
	node string

	mu      sync.Mutex
	running bool
	mode    lab.Mode
}

// Start implements lab.Proxy.
func (p *absent) Start(_ context.Context, o lab.ProxyOptions) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running {
		return fmt.Errorf("%s: kube-proxy is running already: stop it first", p.node)
	}
	p.running, p.mode = true, p.env.modeOf(o)
	p.env.bite()
	return nil
}

// Stop implements lab.Proxy.
func (p *absent) Stop(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = false
	return nil
}

// Kill implements lab.Proxy.
func (p *absent) Kill(ctx context.Context) error { return p.Stop(ctx) }

// Cleanup implements lab.Proxy.
func (p *absent) Cleanup(context.Context, lab.ProxyOptions) (string, error) {
	p.env.bite()
	return "", nil
}

// WaitSynced implements lab.Proxy.
func (p *absent) WaitSynced(context.Context) error { return p.started() }

// Running implements lab.Proxy.
func (p *absent) Running() (bool, error) { return p.started() == nil, nil }

// Mode implements lab.Proxy.
func (p *absent) Mode(context.Context) (string, error) {
	if err := p.started(); err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.mode), nil
}

// Metrics implements lab.Proxy.
func (p *absent) Metrics(context.Context) (lab.Metrics, error) { return noMetrics{}, p.started() }

// Log implements lab.Proxy.
func (p *absent) Log() string { return "" }

// Errors implements lab.Proxy.
func (p *absent) Errors() []string { return nil }

// started is the error that a kube-proxy which was not started, or was stopped, gives too.
func (p *absent) started() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		return fmt.Errorf("%s: kube-proxy is not running", p.node)
	}
	return nil
}

// noMetrics is an empty scrape.
type noMetrics struct{}

func (noMetrics) Sum(string, map[string]string) (float64, bool) { return 0, false }
func (noMetrics) Names() []string                               { return nil }
func (noMetrics) Text() string                                  { return "" }
