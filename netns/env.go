package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"kplab/lab"
	"kplab/lab/apiserver"
	"kplab/lab/kubeproxy"
	"kplab/lab/probe"
	"kplab/lab/topology"
)

// apiServerAddress is where each node finds the API server: in its own namespace, so that no route can lead there wrongly.
const apiServerAddress = "127.0.0.1:6443"

// env implements lab.Env.
type env struct {
	topology topology.Topology
	network  *network
	api      *apiserver.Server
	nodes    []*node
	serving  sync.WaitGroup
	servers  probe.Servers
}

// New builds the standard env for a cell: hosts, API server with the nodes and pods in it, and a kube-proxy, not yet
// started, for each node. It has the signature of agent.NewEnv.
func New(ctx context.Context, job lab.Job, cell lab.Cell, machine lab.Machine) (_ lab.Env, err error) {
	e := &env{topology: topology.Standard()}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	if e.network, err = build(e.topology, job.Root, job.KubeProxies); err != nil {
		return nil, err
	}
	e.api = apiserver.New(apiserver.Config{ServiceCIDRs: e.topology.ServiceCIDR})
	if err := e.api.Apply(ctx, e.clusterObjects()...); err != nil {
		return nil, fmt.Errorf("nodes and pods: %w", err)
	}
	for _, name := range e.network.order {
		h := e.network.hosts[name]
		if h.spec.Role != topology.NodeRole {
			continue
		}
		if err := e.serveAPI(h); err != nil {
			return nil, err
		}
		binaries := map[string]string{}
		for version := range job.KubeProxies {
			binaries[version] = runDir + "/kube-proxy-" + version
		}
		e.nodes = append(e.nodes, &node{host: h, proxy: kubeproxy.New(h, kubeproxy.Options{
			Mode: cell.Mode, Version: cell.KubeProxy, Binaries: binaries,
			APIServer:   "http://" + apiServerAddress,
			ClusterCIDR: join(e.topology.PodCIDRs),
			API:         e.api,
			Deadlines:   lab.Deadlines{Unit: machine.Unit},
		})})
	}
	return e, nil
}

func join(prefixes []netip.Prefix) string {
	var s []string
	for _, p := range prefixes {
		s = append(s, p.String())
	}
	return strings.Join(s, ",")
}

// serveAPI has the API server listen in a node's namespace.
func (e *env) serveAPI(h *host) error {
	var l net.Listener
	err := h.Do(func() (err error) {
		l, err = net.Listen("tcp", apiServerAddress)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: API server: %w", h.spec.Name, err)
	}
	e.serving.Go(func() { _ = e.api.Serve(l) }) // ends when the API server is closed
	return nil
}

// clusterObjects are the Nodes and Pods of the topology.
func (e *env) clusterObjects() (objects []runtime.Object) {
	for _, h := range e.topology.Hosts {
		switch h.Role {
		case topology.NodeRole:
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.Name, Labels: map[string]string{corev1.LabelHostname: h.Name}}}
			for _, p := range h.Addresses["primary"] {
				n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: p.Addr().String()})
				n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, topology.PodCIDR(h.Index-10, p.Addr().Is6()).String())
			}
			n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			objects = append(objects, n)
		case topology.ServerRole, topology.ClientRole:
			p := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: h.Name, Namespace: corev1.NamespaceDefault, Labels: h.Labels},
				Spec:       corev1.PodSpec{NodeName: h.On, Containers: []corev1.Container{{Name: "main", Image: "kplab"}}},
				Status: corev1.PodStatus{
					Phase:      corev1.PodRunning,
					Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
				},
			}
			for _, a := range h.Addresses["primary"] {
				p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a.Addr().String()})
			}
			p.Status.PodIP = p.Status.PodIPs[0].IP
			objects = append(objects, p)
		}
	}
	return objects
}

// Nodes implements lab.Env.
func (e *env) Nodes() []lab.Node {
	nodes := make([]lab.Node, len(e.nodes))
	for i, n := range e.nodes {
		nodes[i] = n
	}
	return nodes
}

// Host implements lab.Env.
func (e *env) Host(name string) (lab.Host, error) {
	for _, n := range e.nodes {
		if n.Name() == name {
			return n, nil
		}
	}
	if h, ok := e.network.hosts[name]; ok {
		return h, nil
	}
	return nil, fmt.Errorf("unknown host %q%s", name, lab.Suggest(name, e.Hosts()))
}

// Cluster implements lab.Env: there is none.
func (e *env) Cluster() lab.Cluster { return nil }

// Hosts implements lab.Env.
func (e *env) Hosts() []string { return slices.Clone(e.network.order) }

// Owner implements lab.Env. The gateway address that a node has on its pods' links is the node's too.
func (e *env) Owner(addr netip.Addr) string {
	addr = addr.Unmap()
	for _, h := range e.topology.Hosts {
		for name, prefixes := range h.Addresses {
			for _, p := range prefixes {
				if p.Addr() == addr && name != "localhost" {
					return h.Name
				}
			}
		}
		if h.Role == topology.NodeRole && addr == topology.PodGateway(h.Index-10, addr.Is6()) {
			return h.Name
		}
	}
	return ""
}

// Apply implements lab.Env.
func (e *env) Apply(ctx context.Context, objects []runtime.Object) error {
	if err := e.topology.CheckInside(objects); err != nil {
		return err
	}
	if err := e.api.Apply(ctx, objects...); err != nil {
		return err
	}
	for _, o := range objects {
		svc, ok := o.(*corev1.Service)
		if !ok {
			continue
		}
		for _, h := range e.network.hosts {
			if h.spec.Role != topology.ServerRole {
				continue
			}
			if err := e.servers.ServeService(h, svc); err != nil {
				return err
			}
		}
	}
	return nil
}

// Serve implements lab.Env.
func (e *env) Serve(_ context.Context, host, network string, port int) error {
	h, err := e.Host(host)
	if err != nil {
		return err
	}
	return e.servers.Serve(h, network, port)
}

// Delete implements lab.Env.
func (e *env) Delete(ctx context.Context, kind, namespace, name string) error {
	return e.api.Delete(ctx, kind, namespace, name)
}

// Service implements lab.Env.
func (e *env) Service(_ context.Context, namespace, name string) (*corev1.Service, error) {
	return e.api.Service(namespace, name)
}

// Deliveries says how long the API server took to send kube-proxies what existed.
func (e *env) Deliveries() []apiserver.Delivery { return e.api.Deliveries() }

// Close implements lab.Env.
func (e *env) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeDeadline)
	defer cancel()
	var errs []error
	var wg sync.WaitGroup
	for _, n := range e.nodes {
		wg.Go(func() { _ = n.proxy.Kill(ctx) }) // its state goes with its namespace
	}
	wg.Wait()
	errs = append(errs, e.servers.Close())
	if e.api != nil {
		e.api.Close()
	}
	e.serving.Wait()
	if e.network != nil {
		e.network.close()
	}
	return errors.Join(errs...)
}
