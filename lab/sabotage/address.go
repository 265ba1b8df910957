package sabotage

import (
	"context"
	"net/netip"

	"kplab/lab"
)

// foreignHost is the host of the standard env that is no part of the cluster: on the nodes' network, it refuses what is sent to it.
const foreignHost = "other"

func armWrongAddress(_ context.Context, e *Env) error {
	foreign, err := e.Env.Host(foreignHost)
	if err != nil {
		return e.failed(err)
	}
	below := e.nodes
	e.nodes = nil
	for _, n := range below {
		e.nodes = append(e.nodes, &misplaced{Node: n, env: e, foreign: foreign})
	}
	return nil
}

// misplaced is a node whose addresses scripts take for another host's.
type misplaced struct {
	lab.Node
	env     *Env
	foreign lab.Host
}

// Address implements lab.Host. The loopback address is the node's own all the same.
func (n *misplaced) Address(name string, family lab.Family) (netip.Addr, bool) {
	addr, ok := n.Node.Address(name, family)
	if !ok || addr.IsLoopback() {
		return addr, ok
	}
	wrong, has := n.foreign.Address("primary", family)
	if !has {
		return addr, ok
	}
	n.env.bite()
	return wrong, true
}
