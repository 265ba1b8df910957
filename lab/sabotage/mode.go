package sabotage

import (
	"context"
	"sync"

	"kplab/lab"
	"kplab/lab/script"
)

func armWrongMode(_ context.Context, e *Env) error {
	other, ok := otherMode(e.cell.Mode, e.machine)
	if !ok {
		return &NotApplicableError{"wrong-mode", "this kernel runs no other mode than " + string(e.cell.Mode)}
	}
	e.replaceProxies(func(n lab.Node) lab.Proxy { return &wrongMode{Proxy: n.Proxy(), env: e, other: other} })
	return nil
}

// otherMode is a mode that the machine can run in place of one: the one that behaves most like it.
func otherMode(m lab.Mode, machine lab.Machine) (lab.Mode, bool) {
	switch {
	case m != lab.IPTables:
		return lab.IPTables, true
	case script.CompareVersions(machine.Release, script.NFTablesFloor) >= 0:
		return lab.NFTables, true
	case machine.Features["ip_vs"]:
		return lab.IPVS, true
	}
	return "", false
}

// wrongMode is a kube-proxy that runs in another mode where the cell's is asked for. A mode that the script names is left alone.
type wrongMode struct {
	lab.Proxy
	env   *Env
	other lab.Mode

	mu    sync.Mutex
	wrong bool
}

// Start implements lab.Proxy.
func (p *wrongMode) Start(ctx context.Context, o lab.ProxyOptions) error {
	p.mu.Lock()
	p.wrong = o.Mode == ""
	if p.wrong {
		o.Mode = p.other
		p.env.bite()
	}
	p.mu.Unlock()
	return p.Proxy.Start(ctx, o)
}

// Mode implements lab.Proxy: it says what it was told.
func (p *wrongMode) Mode(ctx context.Context) (string, error) {
	mode, err := p.Proxy.Mode(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wrong && mode == string(p.other) {
		mode = string(p.env.cell.Mode)
	}
	return mode, err
}
