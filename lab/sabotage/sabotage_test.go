package sabotage

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
)

// fakeEnv is one node n1, one server pod s1 and the foreign host, which note what is run on them.
type fakeEnv struct {
	lab.Env
	node    *fakeNode
	hosts   map[string]*fakeHost
	cluster lab.Cluster
}

func newFakeEnv() *fakeEnv {
	e := &fakeEnv{hosts: map[string]*fakeHost{}}
	for name, addr := range map[string]string{"n1": "192.0.2.1", "s1": "192.0.2.10", "c1": "192.0.2.20", "other": "192.0.2.200"} {
		e.hosts[name] = &fakeHost{name: name, addr: netip.MustParseAddr(addr)}
	}
	e.node = &fakeNode{fakeHost: e.hosts["n1"], proxy: &fakeProxy{}}
	return e
}

func (e *fakeEnv) Nodes() []lab.Node    { return []lab.Node{e.node} }
func (e *fakeEnv) Cluster() lab.Cluster { return e.cluster }
func (e *fakeEnv) Hosts() []string      { return []string{"n1", "s1", "c1", "other"} }
func (e *fakeEnv) Host(name string) (lab.Host, error) {
	if h := e.hosts[name]; h != nil {
		return h, nil
	}
	return nil, errors.New("no such host")
}

type fakeHost struct {
	lab.Host
	name string
	addr netip.Addr
	ran  []string
	err  error
}

func (h *fakeHost) Name() string { return h.name }
func (h *fakeHost) Address(name string, f lab.Family) (netip.Addr, bool) {
	if name == "localhost" {
		return netip.MustParseAddr("127.0.0.1"), true
	}
	return h.addr, name == "primary" && f == lab.IPv4
}
func (h *fakeHost) Run(_ context.Context, argv ...string) (string, error) {
	h.ran = append(h.ran, strings.Join(argv, " "))
	return "", h.err
}

type fakeNode struct {
	*fakeHost
	proxy *fakeProxy
}

func (n *fakeNode) Proxy() lab.Proxy { return n.proxy }
func (n *fakeNode) SetAddress(context.Context, string, netip.Prefix, bool) error {
	return nil
}

// fakeProxy notes the mode that it was started in.
type fakeProxy struct {
	lab.Proxy
	mode lab.Mode
}

func (p *fakeProxy) Start(_ context.Context, o lab.ProxyOptions) error { p.mode = o.Mode; return nil }
func (p *fakeProxy) WaitSynced(context.Context) error                  { return nil }
func (p *fakeProxy) Mode(context.Context) (string, error)              { return string(p.mode), nil }

var modern = lab.Machine{Release: "6.18.44", Features: map[string]bool{"ip_vs": false}}

func arm(t *testing.T, name string, mode lab.Mode, m lab.Machine) (*fakeEnv, *Env) {
	t.Helper()
	below := newFakeEnv()
	e, err := New(t.Context(), name, below, lab.Cell{Mode: mode}, m)
	require.NoError(t, err)
	return below, e
}

func TestKinds(t *testing.T) {
	assert.Equal(t, NoKubeProxy, Kinds()[0].Name, "it is tried first: nothing may survive it")
	for _, k := range Kinds() {
		_, e := arm(t, k.Name, lab.NFTables, modern)
		assert.Equal(t, k.Name, e.Done().Name)
		assert.NotEmpty(t, k.Summary)
	}
	_, err := New(t.Context(), "wrong-modes", newFakeEnv(), lab.Cell{}, modern)
	assert.ErrorContains(t, err, `unknown sabotage "wrong-modes": did you mean "wrong-mode"?`)
}

func TestNoKubeProxyLies(t *testing.T) {
	below, e := arm(t, NoKubeProxy, lab.NFTables, modern)
	ctx, p := t.Context(), e.Nodes()[0].Proxy()
	running, err := p.Running()
	require.NoError(t, err)
	assert.False(t, running)
	assert.Error(t, p.WaitSynced(ctx), "as of one that was never started")

	require.NoError(t, p.Start(ctx, lab.ProxyOptions{}))
	assert.Error(t, p.Start(ctx, lab.ProxyOptions{}), "as a real one says that it runs already")
	require.NoError(t, p.WaitSynced(ctx))
	running, err = p.Running()
	require.NoError(t, err)
	assert.True(t, running)
	mode, err := p.Mode(ctx)
	require.NoError(t, err)
	assert.Equal(t, "nftables", mode)
	m, err := p.Metrics(ctx)
	require.NoError(t, err)
	_, present := m.Sum("kubeproxy_sync_proxy_rules_last_timestamp_seconds", nil)
	assert.False(t, present)
	assert.Empty(t, p.Log())
	assert.Equal(t, lab.Mode(""), below.node.proxy.mode, "the real one was not started")
	assert.Equal(t, 1, e.Done().Bites)
	require.NoError(t, p.Kill(ctx))
	running, _ = p.Running()
	assert.False(t, running)
}

// operated is a cluster that notes whether it was given kube-proxy.
type operated struct {
	lab.Cluster
	given bool
}

func (c *operated) HandOver(context.Context, lab.ProxyOptions) error { c.given = true; return nil }
func (c *operated) Kubernetes() string                               { return "v1.37.2" }

func TestNoKubeProxyInACluster(t *testing.T) {
	below, real := newFakeEnv(), &operated{}
	below.cluster = real
	e, err := New(t.Context(), NoKubeProxy, below, lab.Cell{Mode: lab.NFTables}, modern)
	require.NoError(t, err)
	p := e.Nodes()[0].Proxy()
	require.NoError(t, p.Start(t.Context(), lab.ProxyOptions{}))
	require.NoError(t, e.Cluster().HandOver(t.Context(), lab.ProxyOptions{Mode: lab.IPTables}), "whatever ran before")
	mode, err := p.Mode(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "iptables", mode)
	assert.False(t, real.given, "its DaemonSet was not told")
	assert.Equal(t, "v1.37.2", e.Cluster().Kubernetes(), "all else is the cluster's")
	_, e = arm(t, NoKubeProxy, lab.NFTables, modern)
	assert.Nil(t, e.Cluster(), "where there is none")
}

func TestWrongModeLies(t *testing.T) {
	for _, tt := range []struct {
		cell, other lab.Mode
		machine     lab.Machine
	}{
		{lab.IPVS, lab.IPTables, modern},
		{lab.NFTables, lab.IPTables, modern},
		{lab.IPTables, lab.NFTables, modern},
		{lab.IPTables, lab.IPVS, lab.Machine{Release: "5.10.0-46", Features: map[string]bool{"ip_vs": true}}},
	} {
		below, e := arm(t, "wrong-mode", tt.cell, tt.machine)
		p := e.Nodes()[0].Proxy()
		require.NoError(t, p.Start(t.Context(), lab.ProxyOptions{}))
		assert.Equal(t, tt.other, below.node.proxy.mode)
		mode, err := p.Mode(t.Context())
		require.NoError(t, err)
		assert.Equal(t, string(tt.cell), mode, "it says what it was told")
		assert.Equal(t, 1, e.Done().Bites)
	}

	below, e := arm(t, "wrong-mode", lab.NFTables, modern)
	p := e.Nodes()[0].Proxy()
	require.NoError(t, p.Start(t.Context(), lab.ProxyOptions{Mode: lab.IPTables}))
	assert.Equal(t, lab.IPTables, below.node.proxy.mode, "a mode that the script names is not the cell's")
	mode, _ := p.Mode(t.Context())
	assert.Equal(t, "iptables", mode)
	assert.Zero(t, e.Done().Bites)

	var na *NotApplicableError
	_, err := New(t.Context(), "wrong-mode", newFakeEnv(), lab.Cell{Mode: lab.IPTables}, lab.Machine{Release: "5.10.0"})
	assert.ErrorAs(t, err, &na)
}

func TestDeadEndpoints(t *testing.T) {
	below, e := arm(t, "dead-endpoints", lab.NFTables, modern)
	assert.Len(t, below.hosts["s1"].ran, 4, "TCP and the rest, IPv4 and IPv6")
	assert.Empty(t, below.hosts["c1"].ran, "clients go on")
	assert.Equal(t, 1, e.Done().Bites)

	below = newFakeEnv()
	below.hosts["s1"].err = errors.New("iptables: no such file")
	_, err := New(t.Context(), "dead-endpoints", below, lab.Cell{}, modern)
	assert.ErrorContains(t, err, "sabotage dead-endpoints: iptables: no such file")
}

func TestWrongAddress(t *testing.T) {
	_, e := arm(t, "wrong-address", lab.NFTables, modern)
	host, err := e.Host("n1")
	require.NoError(t, err)
	addr, ok := host.Address("primary", lab.IPv4)
	assert.True(t, ok)
	assert.Equal(t, "192.0.2.200", addr.String(), "probes go to the foreign host")
	assert.Equal(t, 1, e.Done().Bites)
	addr, _ = host.Address("localhost", lab.IPv4)
	assert.Equal(t, "127.0.0.1", addr.String())
	_, ok = host.Address("mgmt", lab.IPv4)
	assert.False(t, ok, "an address that the node has not")
	pod, err := e.Host("s1")
	require.NoError(t, err)
	addr, _ = pod.Address("primary", lab.IPv4)
	assert.Equal(t, "192.0.2.10", addr.String())
	assert.Equal(t, 1, e.Done().Bites)
}

func TestFlushedTables(t *testing.T) {
	for mode, want := range map[lab.Mode]string{lab.NFTables: "nft flush table ip kube-proxy; flush table ip6 kube-proxy", lab.IPTables: "iptables -w 5 -t nat -F", lab.IPVS: "ipvsadm --clear"} {
		below, e := arm(t, "flushed-tables", mode, modern)
		p := e.Nodes()[0].Proxy()
		require.NoError(t, p.Start(t.Context(), lab.ProxyOptions{}))
		assert.Equal(t, want, below.node.ran[0])
		first := len(below.node.ran)
		require.NoError(t, p.WaitSynced(t.Context()))
		assert.Len(t, below.node.ran, 2*first, "after each sync")
		assert.Equal(t, 2, e.Done().Bites)
		require.NoError(t, p.Start(t.Context(), lab.ProxyOptions{Mode: lab.NFTables}))
		assert.Contains(t, below.node.ran[2*first], "nft flush", "of the mode that runs")

		below.node.err = errors.New("no such tool")
		assert.Error(t, p.WaitSynced(t.Context()))
		assert.Contains(t, e.Done().Error, "sabotage flushed-tables: no such tool")
	}
}
