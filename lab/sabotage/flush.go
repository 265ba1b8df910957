package sabotage

import (
	"context"
	"sync"

	"kplab/lab"
)

func armFlushedTables(_ context.Context, e *Env) error {
	e.replaceProxies(func(n lab.Node) lab.Proxy { return &flushed{Proxy: n.Proxy(), env: e, node: n} })
	return nil
}

// flushed is a kube-proxy whose rules are gone by the time that it is said to be synced. Chains and tables stay: kube-proxy would
// notice that they are gone (its canary chain) and program all of them anew.
type flushed struct {
	lab.Proxy
	env  *Env
	node lab.Node

	mu   sync.Mutex
	mode lab.Mode // it runs in
}

// Start implements lab.Proxy.
func (p *flushed) Start(ctx context.Context, o lab.ProxyOptions) error {
	mode := p.env.modeOf(o)
	p.mu.Lock()
	p.mode = mode
	p.mu.Unlock()
	if err := p.Proxy.Start(ctx, o); err != nil {
		return err
	}
	return p.flush(ctx, mode)
}

// WaitSynced implements lab.Proxy.
func (p *flushed) WaitSynced(ctx context.Context) error {
	if err := p.Proxy.WaitSynced(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	mode := p.mode
	p.mu.Unlock()
	return p.flush(ctx, mode)
}

// flushes empties what carries a mode's traffic.
var flushes = map[lab.Mode][][]string{
	lab.IPVS:     append([][]string{{"ipvsadm", "--clear"}}, iptablesFlush...),
	lab.IPTables: iptablesFlush,
	lab.NFTables: {{"nft", "flush table ip kube-proxy; flush table ip6 kube-proxy"}},
}

var iptablesFlush = [][]string{
	{"iptables", "-w", "5", "-t", "nat", "-F"}, {"iptables", "-w", "5", "-t", "filter", "-F"},
	{"ip6tables", "-w", "5", "-t", "nat", "-F"}, {"ip6tables", "-w", "5", "-t", "filter", "-F"},
}

func (p *flushed) flush(ctx context.Context, mode lab.Mode) error {
	for _, argv := range flushes[mode] {
		if _, err := p.node.Run(ctx, argv...); err != nil {
			return p.env.failed(err)
		}
	}
	p.env.bite()
	return nil
}
