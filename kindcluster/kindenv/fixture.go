package kindenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"kplab/lab"
	"kplab/lab/thread"
	"kplab/lab/topology"
)

type podClient = typedcorev1.PodInterface

var isNotFound = apierrors.IsNotFound

const (
	markerNamespace = "kplab-synced"
	// scriptedLabel on a node keeps the DaemonSet's kube-proxy away: the script's runs there.
	scriptedLabel = "kplab/kube-proxy"
)

// cellLabel is on everything outside the scenario's own namespace that a cell makes.
var cellLabel = map[string]string{"kplab/cell": "true"}

// Node is a node of the cluster.
type Node struct {
	Name string // in the API
	PID  int    // of its container's first process, on this machine
}

// Options say which cluster, and how to do there what only its maker can do.
type Options struct {
	Kubeconfig   []byte
	ControlPlane Node   // in whose network namespace the API server is at 127.0.0.1
	Workers      []Node // n1 and n2 are the first two
	// Outside starts a container on the cluster's network and returns the pid of its first process. One that is there already is
	// taken as it is.
	Outside func(ctx context.Context, name string, addresses []netip.Addr) (pid int, err error)
	// ProxyImage returns the image of a kube-proxy version, which these nodes, by their names in the API, have when it returns.
	ProxyImage func(ctx context.Context, version string, nodes ...string) (image string, err error)
	// Administer runs kubectl, as the cluster's administrator, or kubeadm on the control plane.
	Administer func(ctx context.Context, argv ...string) (stdout string, err error)
	// PauseImage is what the pods run: an image that does nothing.
	PauseImage string
	// KindDefaults keeps what kind sets of its own accord in kube-proxy's configuration (tcpBeLiberal in nftables mode).
	KindDefaults bool
	Progress     func(line string)
	Slower       lab.Deadlines // how slow the nodes are
}

// Fixture is what stands in a cluster between cells: pods, outside machines, addresses.
type Fixture struct {
	options   Options
	client    kubernetes.Interface
	topology  topology.Topology // with the cluster's own addresses
	standard  topology.Topology
	hosts     map[string]*host
	order     []string
	nodeNames map[string]string // n1 -> the node's name in the API
	hub       *host
	api       *thread.Thread // in the control plane's network namespace

	daemonSet   *appsv1.DaemonSet // kube-proxy, as the cluster's maker left it
	configMap   *corev1.ConfigMap // of the same
	handedOver  bool              // kube-proxy on every node is the DaemonSet's
	clusterCIDR string
	kubernetes  string // version of the control plane
	serial      atomic.Int32

	markers sync.Mutex
	marker  *marker // nil before the first sync of a cell
}

// Prepare makes the fixture: it takes the DaemonSet's kube-proxies off two workers, starts two pods on each and two machines
// outside, and gives all of them the addresses of the standard topology, as far as the cluster does not choose them.
func Prepare(ctx context.Context, o Options) (_ *Fixture, err error) {
	if len(o.Workers) < 2 {
		return nil, fmt.Errorf("the cluster has %d workers: 2 are needed", len(o.Workers))
	}
	if unix.Geteuid() != 0 {
		return nil, errors.New("joining the namespaces of containers needs root: run kplab with sudo")
	}
	f := &Fixture{
		options: o, topology: topology.Standard(), standard: topology.Standard(), hosts: map[string]*host{},
		nodeNames: map[string]string{"n1": o.Workers[0].Name, "n2": o.Workers[1].Name},
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	config, err := clientcmd.RESTConfigFromKubeConfig(o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of the cluster: %w", err)
	}
	if f.api, err = thread.Join(procPath(o.ControlPlane.PID, "ns/net")); err != nil {
		return nil, fmt.Errorf("%s: %w", o.ControlPlane.Name, err)
	}
	config.Dial = f.dialAPI
	config.QPS, config.Burst = 200, 400
	config.WarningHandler = rest.NoWarnings{} // that externalIPs is deprecated is no news of a run
	if f.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"take the DaemonSet's kube-proxy off two workers", f.takeOverProxies},
		{"start pods", f.startPods},
		{"join the namespaces", f.joinHosts},
		{"name the nodes", f.nameNodes},
		{"addresses and routes", f.address},
		{"reset", f.reset},
	} {
		start := time.Now()
		if err := f.patiently(ctx, step.do); err != nil {
			return nil, fmt.Errorf("%s: %w", step.what, err)
		}
		o.Progress(fmt.Sprintf("cluster: %s: %s", step.what, time.Since(start).Round(time.Millisecond)))
	}
	return f, nil
}

// patiently does a step, which may be done again, until no connection breaks: an API server may start anew when its cluster is just ready.
func (f *Fixture) patiently(ctx context.Context, do func(context.Context) error) (err error) {
	waited := f.poll(ctx, "API server", func() (bool, error) {
		err = do(ctx)
		broke := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err)
		return !broke, err
	})
	if waited != nil {
		return waited
	}
	return err
}

// Close leaves the namespaces. What was made in the cluster goes with the cluster.
func (f *Fixture) Close() {
	for _, h := range f.hosts {
		h.close()
	}
	if f.hub != nil {
		f.hub.close()
	}
	if f.api != nil {
		f.api.Close()
	}
}

// apiPort is where kubeadm has the API server listen.
const apiPort = "6443"

// dialAPI connects to the API server, whatever name and port the kubeconfig has for it: what the engine publishes may be in another network
// namespace.
func (f *Fixture) dialAPI(ctx context.Context, _, _ string) (conn net.Conn, err error) {
	err = f.api.Do(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", apiPort))
		return err
	})
	return conn, err
}

// takeOverProxies reads what the cluster's kube-proxy runs with and keeps it off the workers.
func (f *Fixture) takeOverProxies(ctx context.Context) error {
	sets := f.client.AppsV1().DaemonSets(proxyNamespace)
	ds, err := sets.Get(ctx, "kube-proxy", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("DaemonSet kube-proxy: %w", err)
	}
	f.daemonSet = ds
	version, err := f.client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("version of the API server: %w", err)
	}
	f.kubernetes = version.GitVersion
	cm, err := f.client.CoreV1().ConfigMaps(proxyNamespace).Get(ctx, "kube-proxy", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("ConfigMap kube-proxy: %w", err)
	}
	f.configMap = cm
	var config v1alpha1.KubeProxyConfiguration
	if err := yaml.Unmarshal([]byte(cm.Data["config.conf"]), &config); err != nil {
		return fmt.Errorf("ConfigMap kube-proxy, config.conf: %w", err)
	}
	f.clusterCIDR = config.ClusterCIDR
	f.topology.PodCIDRs, f.topology.ServiceCIDR = nil, nil
	for cidr := range strings.SplitSeq(config.ClusterCIDR, ",") {
		p, err := netip.ParsePrefix(cidr)
		if err != nil {
			return fmt.Errorf("clusterCIDR of the cluster's kube-proxy: %w", err)
		}
		f.topology.PodCIDRs = append(f.topology.PodCIDRs, p)
	}
	services, err := f.client.NetworkingV1().ServiceCIDRs().Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("ServiceCIDR: %w", err)
	}
	for _, cidr := range services.Spec.CIDRs {
		p, err := netip.ParsePrefix(cidr)
		if err != nil {
			return fmt.Errorf("ServiceCIDR: %w", err)
		}
		f.topology.ServiceCIDR = append(f.topology.ServiceCIDR, p)
	}

	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":%q,"operator":"DoesNotExist"}]}]}}}}}}}`, scriptedLabel)
	if f.daemonSet, err = sets.Patch(ctx, "kube-proxy", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("DaemonSet kube-proxy: %w", err)
	}
	return f.keepDaemonSetAway(ctx)
}

// nameNodes puts the nodes' names into the workers' /etc/hosts. kind's nodes ask the engine's name server, at 127.0.0.11 by way of their
// gateway's address, and that works only with route_localnet=1, which is one of the things that a cell must not find set.
func (f *Fixture) nameNodes(ctx context.Context) error {
	nodes, err := f.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var hosts strings.Builder
	for _, n := range nodes.Items {
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				fmt.Fprintf(&hosts, "%s %s\n", a.Address, n.Name)
			}
		}
	}
	for _, name := range []string{"n1", "n2"} {
		if _, err := f.hosts[name].Run(ctx, "sh", "-c", `printf %s "$1" >>/etc/hosts`, "sh", hosts.String()); err != nil {
			return err
		}
	}
	return nil
}

// fixtureDeadline is for nodes whose unit is 1.
const fixtureDeadline = 90 * time.Second

// poll waits until done says so. what names it in the error.
func (f *Fixture) poll(ctx context.Context, what string, done func() (bool, error)) error {
	deadline := f.options.Slower.Of(fixtureDeadline)
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	tick := time.NewTicker(f.options.Slower.Of(pollPod))
	defer tick.Stop()
	for {
		ok, err := done()
		if ok {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: not after %s: %w", what, deadline, errors.Join(err, context.Cause(ctx)))
		}
	}
}

// startPods starts the topology's pods, which do nothing: kplab serves and connects inside their namespaces.
func (f *Fixture) startPods(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: markerNamespace}}
	if _, err := f.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	// A pod is refused until the controller has made its namespace's ServiceAccount.
	err := f.poll(ctx, "ServiceAccount default", func() (bool, error) {
		_, err := f.client.CoreV1().ServiceAccounts(corev1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, err
	})
	if err != nil {
		return err
	}
	pods := f.client.CoreV1().Pods(corev1.NamespaceDefault)
	for _, h := range f.topology.Hosts {
		if h.On == "" {
			continue
		}
		token, grace := false, int64(0)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: h.Name, Labels: h.Labels},
			Spec: corev1.PodSpec{
				NodeName: f.nodeNames[h.On], AutomountServiceAccountToken: &token, TerminationGracePeriodSeconds: &grace,
				Containers: []corev1.Container{{Name: "pause", Image: f.options.PauseImage, ImagePullPolicy: corev1.PullNever}},
			},
		}
		if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("pod %s: %w", h.Name, err)
		}
	}
	for i := range f.topology.Hosts {
		h := &f.topology.Hosts[i]
		if h.On == "" {
			continue
		}
		err := f.poll(ctx, "pod "+h.Name+" is ready and has its addresses", func() (bool, error) {
			pod, err := pods.Get(ctx, h.Name, metav1.GetOptions{})
			if err != nil || pod.Status.Phase != corev1.PodRunning || len(pod.Status.PodIPs) < len(f.topology.PodCIDRs) {
				return false, err
			}
			var at []netip.Prefix
			for _, ip := range pod.Status.PodIPs {
				a, err := netip.ParseAddr(ip.IP)
				if err != nil {
					return false, err
				}
				at = append(at, netip.PrefixFrom(a, a.BitLen()))
			}
			h.Addresses = map[string][]netip.Prefix{"primary": at}
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// joinHosts enters the namespaces of nodes, pods and outside machines.
func (f *Fixture) joinHosts(ctx context.Context) error {
	t, err := thread.New(unix.CLONE_NEWNET)
	if err != nil {
		return err
	}
	if f.hub != nil { // the step is done again
		f.hub.close()
	}
	f.hub = &host{spec: topology.HostSpec{Name: "wire"}, thread: t}
	if err := f.hub.openNetlink(); err != nil {
		return err
	}
	pods := map[string]map[netip.Addr]string{}
	for i, name := range []string{"n1", "n2"} {
		spec := f.spec(name)
		node, err := f.client.CoreV1().Nodes().Get(ctx, f.nodeNames[name], metav1.GetOptions{})
		if err != nil {
			return err
		}
		var primary []netip.Prefix
		for _, a := range node.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
				primary = append(primary, netip.PrefixFrom(ip, ip.BitLen()))
			}
		}
		spec.Addresses["primary"] = primary
		pid := f.options.Workers[i].PID
		if err := f.join(*spec, procPath(pid, "ns/net"), pid); err != nil {
			return err
		}
		if pods[name], err = podNamespaces(f.hosts[name]); err != nil {
			return err
		}
	}
	for _, h := range f.topology.Hosts {
		switch {
		case h.On != "":
			path, ok := pods[h.On][h.Addresses["primary"][0].Addr()]
			if !ok {
				return fmt.Errorf("pod %s: no network namespace of node %s has %s", h.Name, h.On, h.Addresses["primary"][0])
			}
			if err := f.join(h, path, f.hosts[h.On].root); err != nil {
				return err
			}
		case h.Role == topology.OutsideRole:
			var at []netip.Addr
			for _, p := range h.Addresses["primary"] {
				at = append(at, p.Addr())
			}
			pid, err := f.options.Outside(ctx, h.Name, at)
			if err != nil {
				return fmt.Errorf("outside machine %s: %w", h.Name, err)
			}
			if err := f.join(h, procPath(pid, "ns/net"), pid); err != nil {
				return err
			}
		}
	}
	f.order = nil
	for _, h := range f.topology.Hosts {
		f.order = append(f.order, h.Name)
	}
	return nil
}

func (f *Fixture) join(spec topology.HostSpec, path string, root int) error {
	h, err := join(spec, path, root)
	if err != nil {
		return err
	}
	if before := f.hosts[spec.Name]; before != nil { // the step is done again
		before.close()
	}
	f.hosts[spec.Name] = h
	return nil
}

func (f *Fixture) spec(name string) *topology.HostSpec {
	for i := range f.topology.Hosts {
		if f.topology.Hosts[i].Name == name {
			return &f.topology.Hosts[i]
		}
	}
	return nil
}

// address gives nodes and outside machines the addresses that the cluster does not choose, and the routes that lead to them.
// Nobody keeps a way out: traffic of a scenario ends in the cluster's network.
func (f *Fixture) address(context.Context) error {
	if err := wire(f.hub, []*host{f.hosts["n1"], f.hosts["n2"], f.hosts["ext"]}); err != nil {
		return err
	}
	var g errgroup.Group
	for _, name := range []string{"n1", "n2", "ext", "other"} {
		h := f.hosts[name]
		g.Go(func() error {
			for _, a := range []struct{ name, iface string }{{"secondary", "eth0"}, {"floating", "eth0"}, {"mgmt", "eth1"}} {
				for _, p := range h.spec.Addresses[a.name] {
					if err := h.setAddress(a.iface, p, true, a.name != "mgmt"); err != nil {
						return err
					}
				}
			}
			return f.route(h)
		})
	}
	return g.Wait()
}

func (f *Fixture) route(h *host) error {
	for _, v6 := range []bool{false, true} {
		if err := h.dropDefaultRoute(v6); err != nil {
			return err
		}
		ext, _ := f.hosts["ext"].spec.Address("primary", v6)
		if h.spec.Role == topology.NodeRole {
			// To a machine that forwards nothing: without a way out a process could not even begin to connect to a ClusterIP.
			if err := h.setRoute(topology.DefaultRoute(v6), ext.Addr()); err != nil {
				return err
			}
		}
		if h.spec.Role != topology.NodeRole && !h.spec.Routes {
			continue
		}
		for _, name := range []string{"n1", "n2"} {
			peer := f.hosts[name]
			if peer == h {
				continue
			}
			via, _ := peer.spec.Address("primary", v6)
			floating, _ := peer.spec.Address("floating", v6)
			if err := h.setRoute(floating, via.Addr()); err != nil {
				return err
			}
			if h.spec.Role == topology.NodeRole {
				continue // the cluster has routes to its pods
			}
			for _, pod := range f.topology.Hosts {
				if pod.On != name {
					continue
				}
				p, ok := pod.Address("primary", v6)
				if !ok {
					continue
				}
				if err := h.setRoute(p, via.Addr()); err != nil {
					return err
				}
			}
		}
		if h.spec.Role == topology.OutsideRole {
			via, _ := f.hosts["n1"].spec.Address("primary", v6)
			for _, cidr := range f.topology.ServiceCIDR {
				if cidr.Addr().Is6() == v6 {
					if err := h.setRoute(cidr, via.Addr()); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// proxyImage is the image of a kube-proxy version, which these nodes have then.
func (f *Fixture) proxyImage(ctx context.Context, version string, nodes ...string) (string, error) {
	image, err := f.options.ProxyImage(ctx, version, nodes...)
	if err != nil {
		return "", fmt.Errorf("image of kube-proxy %s: %w", version, err)
	}
	return image, nil
}

// selected are the pods that a Service's selector means.
func (f *Fixture) selected(svc *corev1.Service) (pods []topology.HostSpec) {
	if len(svc.Spec.Selector) == 0 {
		return nil
	}
	selector := labels.SelectorFromSet(svc.Spec.Selector)
	for _, h := range f.topology.Hosts {
		if h.On != "" && selector.Matches(labels.Set(h.Labels)) {
			pods = append(pods, h)
		}
	}
	return pods
}
