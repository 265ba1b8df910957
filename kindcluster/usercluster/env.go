package usercluster

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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"kplab/lab"
	"kplab/lab/topology"
)

// env implements lab.Env for one cell: the fixture, and the Services that the cell has made.
type env struct {
	*Fixture
	nodesInUse []*node

	mu     sync.Mutex
	marker *marker // nil once something has changed
	stale  *marker // the one before, which is to be removed
}

// Env makes the env of one cell. The one before must be closed. It has the signature of agent.NewEnv.
func (f *Fixture) Env(ctx context.Context, _ lab.Job, _ lab.Cell, _ lab.Machine) (lab.Env, error) {
	e := &env{Fixture: f}
	for i, name := range []string{"n1", "n2"} {
		n := &node{host: f.hosts[name], proxy: &proxy{env: e, node: f.hosts[name], pod: f.Proxy.pods[i]}}
		if n.proxy.pod != "" {
			var err error
			if n.proxy.identity, n.proxy.restarts, err = n.proxy.look(ctx); err != nil {
				return nil, err
			}
		}
		e.nodesInUse = append(e.nodesInUse, n)
	}
	return e, nil
}

// Nodes implements lab.Env.
func (e *env) Nodes() (all []lab.Node) {
	for _, n := range e.nodesInUse {
		all = append(all, n)
	}
	return all
}

// Host implements lab.Env.
func (e *env) Host(name string) (lab.Host, error) {
	for _, n := range e.nodesInUse {
		if n.name == name {
			return n, nil
		}
	}
	if h, ok := e.hosts[name]; ok {
		return h, nil
	}
	if name == e.outside.Name() {
		return e.outside, nil
	}
	return nil, fmt.Errorf("unknown host %q%s", name, lab.Suggest(name, e.Hosts()))
}

// Hosts implements lab.Env.
func (e *env) Hosts() (names []string) {
	for _, h := range podSpecs() {
		names = append(names, h.Name)
	}
	return append(names, e.outside.Name())
}

// Owner implements lab.Env. Nodes have the addresses of all their interfaces, and where these could not be asked, what is of their pods'
// ranges and no pod's.
func (e *env) Owner(addr netip.Addr) string {
	addr = addr.Unmap()
	for name, h := range e.hosts {
		if slices.Contains(h.owned, addr) {
			return name
		}
	}
	if slices.Contains(e.outside.owned, addr) {
		return e.outside.Name()
	}
	for name, n := range e.nodes {
		if e.hosts[name].client == nil && slices.ContainsFunc(n.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			return name
		}
	}
	return ""
}

// Apply implements lab.Env. Services of the namespace default are the run's namespace's; what asks for two families gets those that there are.
func (e *env) Apply(ctx context.Context, objects []runtime.Object) error {
	for _, o := range objects {
		svc, ok := o.(*corev1.Service)
		if !ok {
			return fmt.Errorf("only Services are applied in a cluster that is in use, not a %T", o)
		}
		svc.Namespace = e.namespace
		if p := svc.Spec.IPFamilyPolicy; p != nil && *p == corev1.IPFamilyPolicyRequireDualStack && len(e.families()) < 2 {
			prefer := corev1.IPFamilyPolicyPreferDualStack
			svc.Spec.IPFamilyPolicy = &prefer
		}
		if err := e.put(ctx, svc); err != nil {
			return err
		}
	}
	e.changed()
	for _, o := range objects {
		svc := o.(*corev1.Service)
		if err := e.serveService(ctx, svc); err != nil {
			return err
		}
		if err := e.waitEndpoints(ctx, svc.Name); err != nil {
			return err
		}
	}
	return nil
}

// put creates a Service, or updates the one that has its name. A node port that is somebody else's is nobody's fault.
func (e *env) put(ctx context.Context, svc *corev1.Service) error {
	c := e.client.CoreV1().Services(e.namespace)
	have, err := c.Get(ctx, svc.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = c.Create(ctx, svc, metav1.CreateOptions{})
	case err == nil:
		svc = svc.DeepCopy()
		svc.ResourceVersion = have.ResourceVersion
		_, err = c.Update(ctx, svc, metav1.UpdateOptions{})
	}
	if apierrors.IsInvalid(err) && strings.Contains(err.Error(), "provided port is already allocated") {
		return &lab.AbsentError{Reason: fmt.Sprintf("a node port of Service %s is taken in this cluster: %v", svc.Name, err)}
	}
	if err != nil {
		return fmt.Errorf("Service %s: %w", svc.Name, err)
	}
	return nil
}

// serveService has the server pods listen on the ports that a Service leads to.
func (e *env) serveService(ctx context.Context, svc *corev1.Service) error {
	for _, h := range e.hosts {
		if h.spec.Role != topology.ServerRole {
			continue
		}
		for _, p := range svc.Spec.Ports {
			port := p.TargetPort.IntValue()
			if port == 0 {
				port = int(p.Port)
			}
			network := strings.ToLower(string(p.Protocol))
			if network == "" {
				network = "tcp"
			}
			if err := e.Serve(ctx, h.name, network, port); err != nil {
				return err
			}
		}
	}
	return nil
}

// Serve implements lab.Env.
func (e *env) Serve(ctx context.Context, name, network string, port int) error {
	h := e.hosts[name]
	if h == nil || h.client == nil {
		return fmt.Errorf("nothing can listen on %s", name)
	}
	_, err := h.client.Serve(ctx, name, network, port)
	return err
}

const endpointsDeadline = 30 * time.Second

// waitEndpoints waits until the controller's EndpointSlices of a Service have the addresses of all pods that it selects, and no other.
func (e *env) waitEndpoints(ctx context.Context, name string) error {
	svc, err := e.Service(ctx, corev1.NamespaceDefault, name)
	if err != nil || len(svc.Spec.Selector) == 0 {
		return err
	}
	want := map[string]bool{}
	selector := labels.SelectorFromSet(svc.Spec.Selector)
	for _, h := range e.hosts {
		if h.spec.On == "" || !selector.Matches(labels.Set(h.spec.Labels)) {
			continue
		}
		for _, family := range svc.Spec.IPFamilies {
			for _, have := range e.families() {
				if a, ok := h.Address("primary", have); ok && ipFamilyOf(have) == family {
					want[a.String()] = true
				}
			}
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, endpointsDeadline, fmt.Errorf("not after %s", endpointsDeadline))
	defer cancel()
	err = poll(ctx, func() (bool, error) {
		list, err := e.client.DiscoveryV1().EndpointSlices(e.namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name})
		if err != nil {
			return false, err
		}
		seen := map[string]bool{}
		for _, slice := range list.Items {
			for _, ep := range slice.Endpoints {
				for _, a := range ep.Addresses {
					if !want[a] || ep.Conditions.Ready == nil || !*ep.Conditions.Ready {
						return false, fmt.Errorf("%s is an endpoint and should not be, or is not ready", a)
					}
					seen[a] = true
				}
			}
		}
		return len(seen) == len(want), fmt.Errorf("%d of %d", len(seen), len(want))
	})
	if err != nil {
		return fmt.Errorf("endpoints of Service %s: %w", name, err)
	}
	return nil
}

// Delete implements lab.Env.
func (e *env) Delete(ctx context.Context, kind, _, name string) error {
	if kind != "Service" {
		return fmt.Errorf("only Services are deleted in a cluster that is in use, not %s %s", strings.ToLower(kind), name)
	}
	e.changed()
	return e.client.CoreV1().Services(e.namespace).Delete(ctx, name, metav1.DeleteOptions{})
}

// Service implements lab.Env. Every namespace is the run's.
func (e *env) Service(ctx context.Context, _, name string) (*corev1.Service, error) {
	svc, err := e.client.CoreV1().Services(e.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("no Service %q in namespace %s", name, e.namespace)
	}
	return svc, err
}

// Cluster implements lab.Env: it is none that a script may operate.
func (e *env) Cluster() lab.Cluster { return nil }

// Evidence implements lab.Env: the run's own objects, and kube-proxy's log since the run began and its metrics. Of everything else in the
// cluster nothing is kept.
func (e *env) Evidence(ctx context.Context) map[string][]byte {
	files := map[string][]byte{"objects.yaml": e.objects(ctx)}
	for _, n := range e.nodesInUse {
		if m, err := n.proxy.Metrics(ctx); err == nil {
			files[n.name+"/metrics.txt"] = []byte(m.Text())
		}
		if log := n.proxy.Log(); log != "" {
			files[n.name+"/kube-proxy.log"] = []byte(log)
		}
	}
	return files
}

func (e *env) objects(ctx context.Context) []byte {
	var texts []string
	add := func(o any, err error) {
		text, marshalErr := yaml.Marshal(o)
		if err = errors.Join(err, marshalErr); err != nil {
			text = fmt.Appendf(nil, "# %v\n", err)
		}
		texts = append(texts, string(text))
	}
	services, err := e.client.CoreV1().Services(e.namespace).List(ctx, metav1.ListOptions{})
	add(services, err)
	endpoints, err := e.client.DiscoveryV1().EndpointSlices(e.namespace).List(ctx, metav1.ListOptions{})
	add(endpoints, err)
	return []byte(strings.Join(texts, "---\n"))
}

// Close implements lab.Env: it removes the cell's Services, and their servers.
func (e *env) Close() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), endpointsDeadline, errNoTime)
	defer cancel()
	services := e.client.CoreV1().Services(e.namespace)
	list, err := services.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the Services of namespace %s: %w", e.namespace, err)
	}
	var errs []error
	for _, svc := range list.Items {
		if err := services.Delete(ctx, svc.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("Service %s: %w", svc.Name, err))
		}
	}
	for _, name := range []string{"s1", "s2"} {
		errs = append(errs, e.hosts[name].client.CloseServers(ctx))
	}
	return errors.Join(errs...)
}
