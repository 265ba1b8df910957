// Package sabotage breaks a cell's env on purpose, so that `kplab selftest` can demand that the cell's verdict turns away from
// pass: a scenario that passes in a broken lab proves nothing when it passes in a whole one.
//
// A sabotage is a decorator of [lab.Env]. Scripts do not know of it, and it hides itself as well as it can: what is not done is
// reported as done, and no method returns an error that a whole env would not return. What turns a verdict is then what the
// script observes, and not the lab's own guards (that a dead kube-proxy is an error, that /proxyMode names the cell's mode).
package sabotage

import (
	"context"
	"fmt"
	"sync"

	"kplab/lab"
)

// Kind is one way to break an env.
type Kind struct {
	Name    string // as in [lab.Job.Sabotage]
	Summary string // what is broken, as a clause
	arm     func(ctx context.Context, e *Env) error
}

// NoKubeProxy is the sabotage that no cell may survive, whatever else turns it.
const NoKubeProxy = "no-kube-proxy"

// Kinds lists the sabotages in the order in which they are tried: NoKubeProxy first.
func Kinds() []Kind {
	return []Kind{
		{NoKubeProxy, "kube-proxy is never started, and said to run", armNoKubeProxy},
		{"wrong-mode", "kube-proxy runs in another mode than it is told to, and says it does not", armWrongMode},
		{"dead-endpoints", "the server pods refuse whatever arrives", armDeadEndpoints},
		{"wrong-address", "a node's addresses are taken for those of a foreign host", armWrongAddress},
		{"flushed-tables", "the mode's tables are flushed after each sync", armFlushedTables},
	}
}

// NotApplicableError says that a sabotage makes no sense in a cell.
type NotApplicableError struct{ Sabotage, Reason string }

func (e *NotApplicableError) Error() string { return e.Sabotage + " does not apply: " + e.Reason }

// Env is an env that is broken in one way. Its methods may be called from any goroutine, as those of the env below it.
type Env struct {
	lab.Env
	name    string
	cell    lab.Cell
	machine lab.Machine
	nodes   []lab.Node // as scripts see them
	cluster lab.Cluster

	mu    sync.Mutex
	bites int
	err   error
}

var _ lab.Env = (*Env)(nil)

// New breaks an env that no script has used yet. The error is a *NotApplicableError where the sabotage makes no sense for the
// cell on this machine; any other says that it could not be carried out. The env below is then the caller's to close.
func New(ctx context.Context, name string, env lab.Env, cell lab.Cell, machine lab.Machine) (*Env, error) {
	var known []string
	for _, k := range Kinds() {
		if k.Name != name {
			known = append(known, k.Name)
			continue
		}
		e := &Env{Env: env, name: name, cell: cell, machine: machine, nodes: env.Nodes(), cluster: env.Cluster()}
		if err := k.arm(ctx, e); err != nil {
			return nil, err
		}
		return e, nil
	}
	return nil, fmt.Errorf("unknown sabotage %q%s", name, lab.Suggest(name, known))
}

// Done says what the sabotage came to so far.
func (e *Env) Done() *lab.Sabotage {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &lab.Sabotage{Name: e.name, Bites: e.bites}
	if e.err != nil {
		s.Error = e.err.Error()
	}
	return s
}

// Nodes implements lab.Env.
func (e *Env) Nodes() []lab.Node { return e.nodes }

// Cluster implements lab.Env.
func (e *Env) Cluster() lab.Cluster { return e.cluster }

// Host implements lab.Env: a node is the same as in Nodes.
func (e *Env) Host(name string) (lab.Host, error) {
	for _, n := range e.nodes {
		if n.Name() == name {
			return n, nil
		}
	}
	return e.Env.Host(name)
}

// bite counts that the sabotage has come to bear.
func (e *Env) bite() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bites++
}

// failed keeps the first error that the sabotage itself made, and returns it: a verdict that it caused has not turned.
func (e *Env) failed(err error) error {
	err = fmt.Errorf("sabotage %s: %w", e.name, err)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.err = err
	}
	return err
}

// proxied is a node with another kube-proxy than its own.
type proxied struct {
	lab.Node
	proxy lab.Proxy
}

func (n *proxied) Proxy() lab.Proxy { return n.proxy }

// replaceProxies gives each node the kube-proxy that replace makes of it.
func (e *Env) replaceProxies(replace func(lab.Node) lab.Proxy) {
	below := e.nodes
	e.nodes = nil
	for _, n := range below {
		e.nodes = append(e.nodes, &proxied{Node: n, proxy: replace(n)})
	}
}

// modeOf is the mode that a start asks for.
func (e *Env) modeOf(o lab.ProxyOptions) lab.Mode {
	if o.Mode == "" {
		return e.cell.Mode
	}
	return o.Mode
}
