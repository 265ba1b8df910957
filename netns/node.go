package netns

import (
	"context"
	"net/netip"
	"time"

	"kplab/lab"
	"kplab/lab/kubeproxy"
)

// closeDeadline bounds the end of an env's processes.
const closeDeadline = 10 * time.Second

// node is a host that runs kube-proxy. It implements lab.Node.
type node struct {
	*host
	proxy *kubeproxy.Process
}

var _ lab.Node = (*node)(nil)

// Proxy implements lab.Node.
func (n *node) Proxy() lab.Proxy { return n.proxy }

// SetAddress implements lab.Node.
func (n *node) SetAddress(_ context.Context, iface string, prefix netip.Prefix, present bool) error {
	return n.setAddress(iface, prefix, present)
}
