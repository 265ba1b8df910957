package kindenv

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"kplab/lab"
	"kplab/lab/evidence"
	"kplab/lab/probe"
	"kplab/lab/topology"
)

// closeDeadline bounds the end of a cell's kube-proxies and the removal of its objects.
const closeDeadline = time.Minute

// env implements lab.Env for one cell.
type env struct {
	*Fixture
	nodes   []*node
	servers probe.Servers
}

// node implements lab.Node.
type node struct {
	*host
	env   *env
	proxy *proxy
}

// Proxy implements lab.Node.
func (n *node) Proxy() lab.Proxy { return n.proxy }

// SetAddress implements lab.Node.
func (n *node) SetAddress(_ context.Context, iface string, prefix netip.Prefix, present bool) error {
	return n.setAddress(iface, prefix, present, false)
}

// Env makes the env of one cell. The one before must be closed. It has the signature of agent.NewEnv.
func (f *Fixture) Env(_ context.Context, _ lab.Job, cell lab.Cell, machine lab.Machine) (lab.Env, error) {
	e := &env{Fixture: f}
	for _, name := range []string{"n1", "n2"} {
		h := f.hosts[name]
		e.nodes = append(e.nodes, &node{host: h, env: e, proxy: &proxy{
			f: f, node: h, cell: cell, scale: lab.Deadlines{Unit: machine.Unit}, metrics: h.dialer(),
		}})
	}
	return e, nil
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
	if h, ok := e.hosts[name]; ok {
		return h, nil
	}
	return nil, fmt.Errorf("unknown host %q%s", name, lab.Suggest(name, e.Hosts()))
}

// Hosts implements lab.Env.
func (e *env) Hosts() []string { return slices.Clone(e.order) }

// Owner implements lab.Env. What a pod sees of its node is the gateway address on its link, or the node's own.
func (e *env) Owner(addr netip.Addr) string {
	addr = addr.Unmap()
	for _, h := range e.topology.Hosts {
		for name, prefixes := range h.Addresses {
			if name != "localhost" && slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Addr() == addr }) {
				return h.Name
			}
		}
	}
	for _, n := range e.nodes {
		addresses, err := n.nl.AddrList(nil, 0)
		if err != nil {
			continue
		}
		for _, a := range addresses {
			if ip, ok := netip.AddrFromSlice(a.IP); ok && ip.Unmap() == addr && !addr.IsLoopback() {
				return n.Name()
			}
		}
	}
	return ""
}

// here is an address of the standard topology as this cluster has it: manifests name pods and nodes by those.
func (f *Fixture) here(text string) string {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return text
	}
	for i, h := range f.standard.Hosts {
		for name, prefixes := range h.Addresses {
			for _, p := range prefixes {
				if p.Addr() != addr || name == "localhost" {
					continue
				}
				if own, ok := f.topology.Hosts[i].Address(name, addr.Is6()); ok {
					return own.Addr().String()
				}
			}
		}
	}
	return text
}

// Apply implements lab.Env.
func (e *env) Apply(ctx context.Context, objects []runtime.Object) error {
	var services []*corev1.Service
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Service:
			for i, ip := range o.Spec.ExternalIPs {
				o.Spec.ExternalIPs[i] = e.here(ip)
			}
			for i, in := range o.Status.LoadBalancer.Ingress {
				o.Status.LoadBalancer.Ingress[i].IP = e.here(in.IP)
			}
			services = append(services, o)
		case *discoveryv1.EndpointSlice:
			for i := range o.Endpoints {
				for j, ip := range o.Endpoints[i].Addresses {
					o.Endpoints[i].Addresses[j] = e.here(ip)
				}
				if name := o.Endpoints[i].NodeName; name != nil && e.nodeNames[*name] != "" {
					own := e.nodeNames[*name]
					o.Endpoints[i].NodeName = &own
				}
			}
		}
	}
	if err := e.topology.CheckInside(objects); err != nil {
		return err
	}
	for _, o := range objects {
		if err := e.put(ctx, o); err != nil {
			return err
		}
	}
	for _, svc := range services {
		for _, h := range e.hosts {
			if h.spec.Role == topology.ServerRole {
				if err := e.servers.ServeService(h, svc); err != nil {
					return err
				}
			}
		}
		if err := e.waitEndpoints(ctx, svc); err != nil {
			return err
		}
	}
	return nil
}

// put creates an object, or updates the one that has its name.
func (e *env) put(ctx context.Context, o runtime.Object) error {
	switch o := o.(type) {
	case *corev1.Service:
		o.Namespace = namespaceOf(o.Namespace)
		c := e.client.CoreV1().Services(o.Namespace)
		status := o.Status
		have, err := c.Get(ctx, o.Name, metav1.GetOptions{})
		var got *corev1.Service
		switch {
		case isNotFound(err):
			got, err = c.Create(ctx, o, metav1.CreateOptions{})
		case err == nil:
			o = o.DeepCopy()
			o.ResourceVersion = have.ResourceVersion
			got, err = c.Update(ctx, o, metav1.UpdateOptions{})
		}
		if err == nil && len(status.LoadBalancer.Ingress) > 0 {
			got.Status = status
			_, err = c.UpdateStatus(ctx, got, metav1.UpdateOptions{})
		}
		return err
	case *discoveryv1.EndpointSlice:
		o.Namespace = namespaceOf(o.Namespace)
		c := e.client.DiscoveryV1().EndpointSlices(o.Namespace)
		have, err := c.Get(ctx, o.Name, metav1.GetOptions{})
		switch {
		case isNotFound(err):
			_, err = c.Create(ctx, o, metav1.CreateOptions{})
		case err == nil:
			o = o.DeepCopy()
			o.ResourceVersion = have.ResourceVersion
			_, err = c.Update(ctx, o, metav1.UpdateOptions{})
		}
		return err
	}
	return fmt.Errorf("a kind cluster has nodes and pods of its own: a scenario cannot apply %T there", o)
}

func namespaceOf(name string) string {
	if name == "" {
		return corev1.NamespaceDefault
	}
	return name
}

// waitEndpoints waits until the controller's EndpointSlices of a Service have the addresses of all pods that it selects, and
// no other.
func (e *env) waitEndpoints(ctx context.Context, svc *corev1.Service) error {
	if len(svc.Spec.Selector) == 0 {
		return nil
	}
	stored, err := e.Service(ctx, svc.Namespace, svc.Name)
	if err != nil {
		return err
	}
	want := map[string]bool{}
	for _, pod := range e.selected(svc) {
		for _, family := range stored.Spec.IPFamilies {
			if p, ok := pod.Address("primary", family == corev1.IPv6Protocol); ok {
				want[p.Addr().String()] = true
			}
		}
	}
	return e.poll(ctx, "endpoints of Service "+svc.Name, func() (bool, error) {
		list, err := e.client.DiscoveryV1().EndpointSlices(svc.Namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + svc.Name})
		if err != nil {
			return false, err
		}
		seen := 0
		for _, slice := range list.Items {
			for _, ep := range slice.Endpoints {
				for _, a := range ep.Addresses {
					if !want[a] || ep.Conditions.Ready == nil || !*ep.Conditions.Ready {
						return false, fmt.Errorf("%s is an endpoint and should not be, or is not ready", a)
					}
					seen++
				}
			}
		}
		return seen == len(want), fmt.Errorf("%d of %d", seen, len(want))
	})
}

// Delete implements lab.Env.
func (e *env) Delete(ctx context.Context, kind, namespace, name string) error {
	switch kind {
	case "Service":
		return e.client.CoreV1().Services(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	case "EndpointSlice":
		return e.client.DiscoveryV1().EndpointSlices(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	}
	return fmt.Errorf("a kind cluster has nodes and pods of its own: a scenario cannot delete %s %s there", strings.ToLower(kind), name)
}

// Service implements lab.Env.
func (e *env) Service(ctx context.Context, namespace, name string) (*corev1.Service, error) {
	svc, err := e.client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("no Service %q in namespace %s", name, namespace)
	}
	return svc, err
}

// Serve implements lab.Env.
func (e *env) Serve(_ context.Context, host, network string, port int) error {
	h, err := e.Host(host)
	if err != nil {
		return err
	}
	return e.servers.Serve(h, network, port)
}

// Evidence implements lab.Env.
func (e *env) Evidence(ctx context.Context) map[string][]byte {
	files := evidence.Collect(ctx, e.Nodes())
	files["objects.yaml"] = e.objects(ctx)
	return files
}

func (e *env) objects(ctx context.Context) []byte {
	var texts []string
	add := func(o any, err error) {
		text, marshalErr := yaml.Marshal(o)
		if err = errors.Join(err, marshalErr); err != nil {
			text = []byte(fmt.Sprintf("# %v\n", err))
		}
		texts = append(texts, string(text))
	}
	services, err := e.client.CoreV1().Services(corev1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	add(services, err)
	endpoints, err := e.client.DiscoveryV1().EndpointSlices(corev1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	add(endpoints, err)
	nodes, err := e.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	add(nodes, err)
	return []byte(strings.Join(texts, "---\n"))
}

// Close implements lab.Env: it takes back what the cell did, so that the next one begins as this one did.
func (e *env) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), e.options.Slower.Of(closeDeadline))
	defer cancel()
	errs := make([]error, len(e.nodes))
	var wg sync.WaitGroup
	for i, n := range e.nodes {
		wg.Go(func() {
			var exit *lab.ProxyExit
			if err := n.proxy.Kill(ctx); err != nil && !errors.As(err, &exit) && !errors.Is(err, errHandedOver) {
				errs[i] = err
			}
		})
	}
	wg.Wait()
	errs = append(errs, e.servers.Close(), e.reset(ctx))
	return errors.Join(errs...)
}
