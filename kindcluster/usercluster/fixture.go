package usercluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kplab/lab"
	"kplab/lab/topology"
)

// Options say how to prepare a cluster.
type Options struct {
	Namespace string // see NewNamespace
	Image     string // of the pods: it has a shell
	Program   string // path of this kplab
	Progress  func(line string)
}

// Fixture is what a run has in a cluster.
type Fixture struct {
	*Cluster
	// Proxy is what implements Services, with the mode that kube-proxy on the nodes itself has named.
	Proxy ServiceProxy

	options    Options
	namespace  string
	created    bool // the namespace
	since      time.Time
	nodes      map[string]Node // n1, n2
	rawSockets bool            // the pods are given NET_RAW
	hosts      map[string]*host
	outside    *outside
	missing    map[string]string // why a host is not there, by name; "ext/4", "ext/6": in one family
	markers    atomic.Int32      // those made so far: each has a port of its own, so that no rule of an older one is taken for it

	streaming context.Context // of what runs in the pods
	hangUp    context.CancelFunc
	streams   sync.WaitGroup

	closing  sync.Once
	closeErr error
}

const closeDeadline = 10 * time.Second

// Prepare makes the namespace and the pods, starts kplab in them and finds out what the cluster lacks. What it has made is gone again if it
// fails or ctx ends.
func Prepare(ctx context.Context, c *Cluster, s Survey, o Options) (_ *Fixture, err error) {
	f := &Fixture{
		Cluster: c, Proxy: s.Proxy, options: o, namespace: o.Namespace, since: time.Now(), rawSockets: true,
		nodes: map[string]Node{"n1": s.Nodes[0], "n2": s.Nodes[1]}, hosts: map[string]*host{}, missing: map[string]string{},
	}
	f.streaming, f.hangUp = context.WithCancel(context.WithoutCancel(ctx))
	program, err := packed(o.Program)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(context.WithoutCancel(ctx)))
		}
	}()
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"namespace", func(ctx context.Context) error {
			err := f.createNamespace(ctx, f.namespace)
			// An API server that did not answer may have created it all the same.
			f.created = err == nil || apierrors.ReasonForError(err) == metav1.StatusReasonUnknown
			return err
		}},
		{"pods", f.startPods},
		{"kplab in the pods", func(ctx context.Context) error { return f.enter(ctx, program) }},
		{"mode", f.askMode},
		{"this machine", f.lookOutside},
	} {
		began := time.Now()
		if err := step.do(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", step.what, err)
		}
		o.Progress(fmt.Sprintf("cluster: %s: %s", step.what, time.Since(began).Round(100*time.Millisecond)))
	}
	for _, line := range f.lackings() {
		o.Progress("cluster: " + line)
	}
	return f, nil
}

// Close removes what Prepare has made, and returns when it is gone. A second call returns what the first did.
func (f *Fixture) Close(ctx context.Context) error {
	f.closing.Do(func() { f.closeErr = f.close(ctx) })
	return f.closeErr
}

func (f *Fixture) close(ctx context.Context) error {
	closing, cancel := context.WithTimeout(ctx, closeDeadline)
	defer cancel()
	var g errgroup.Group
	for _, h := range f.hosts {
		if h.client != nil {
			g.Go(func() error { return h.client.Close(closing) })
		}
	}
	_ = g.Wait() // it ends with its pod at the latest
	var err error
	if f.created {
		err = f.removeNamespace(ctx, f.namespace)
	}
	f.hangUp()
	f.streams.Wait()
	return err
}

// enter starts kplab in every pod.
func (f *Fixture) enter(ctx context.Context, program []byte) error {
	g, ctx := errgroup.WithContext(ctx)
	var without [2]string // why the nodes' pods have no raw sockets
	for _, spec := range podSpecs() {
		h := &host{name: spec.Name, spec: spec, addresses: map[string][]netip.Addr{}}
		f.hosts[spec.Name] = h
		if spec.Role == topology.NodeRole {
			h.addresses["primary"] = f.nodes[spec.Name].Addresses
			h.addresses["localhost"] = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}
			h.owned = f.nodes[spec.Name].Addresses
		}
		if f.missing[spec.Name] != "" {
			continue
		}
		g.Go(func() error {
			at, err := f.waitPod(ctx, spec.Name)
			if err != nil {
				return err
			}
			if spec.Role != topology.NodeRole {
				h.addresses["primary"], h.owned = at, at
			}
			if err := f.install(ctx, spec.Name, program); err != nil {
				return err
			}
			h.client = f.start(spec.Name)
			place, err := h.client.Describe(ctx)
			if err != nil {
				return err
			}
			why := ""
			if place.RawSockets != "" {
				why = fmt.Sprintf("probes need raw sockets to tell a refusal from an ICMP error, and pod %s has none (%s): the cluster takes NET_RAW from pods", spec.Name, place.RawSockets)
			}
			if spec.Role != topology.NodeRole {
				if why != "" {
					return errors.New(why)
				}
				return nil
			}
			h.owned = append(slices.Clone(h.owned), place.Addresses...)
			without[slices.Index([]string{"n1", "n2"}, spec.Name)] = why
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, name := range []string{"n1", "n2"} {
		if without[i] != "" {
			f.missing[name] = without[i]
		}
	}
	f.disown()
	return nil
}

// disown forgets addresses that are on both nodes: those of bridges and caches that every node has.
func (f *Fixture) disown() {
	a, b := f.hosts["n1"], f.hosts["n2"]
	shared := func(own, other *host) []netip.Addr {
		return slices.DeleteFunc(slices.Clone(own.owned), func(x netip.Addr) bool {
			return x.IsLoopback() || x.IsLinkLocalUnicast() || slices.Contains(other.owned, x)
		})
	}
	a.owned, b.owned = shared(a, b), shared(b, a)
}

// askMode asks kube-proxy on each node for its mode, and believes that more than what was found out before.
func (f *Fixture) askMode(ctx context.Context) error {
	var said [2]lab.Mode
	var failed error
	for i, name := range []string{"n1", "n2"} {
		h := f.hosts[name]
		if h.client == nil {
			failed = errors.New(f.missing[name])
			break
		}
		text, err := h.client.Get(ctx, kubeProxyPort, "/proxyMode")
		if err != nil {
			failed = err
			break
		}
		if said[i], err = lab.ParseMode(strings.TrimSpace(text)); err != nil {
			failed = fmt.Errorf("kube-proxy's /proxyMode: %w", err)
			break
		}
	}
	p := &f.Proxy
	switch {
	case failed != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case failed != nil && p.Mode == "":
		return fmt.Errorf("kube-proxy's mode cannot be told: neither pods and ConfigMaps of kube-system nor its /proxyMode on the nodes can be read (%w)", failed)
	case failed != nil && p.Mode != lab.NoKubeProxy:
		f.options.Progress(fmt.Sprintf("cluster: the mode is what %s says: kube-proxy itself could not be asked on the nodes (%v)", p.Source, failed))
	case failed != nil:
	case said[0] != said[1]:
		return fmt.Errorf("kube-proxy runs in %s mode on %s and in %s mode on %s: what a run would show is of neither", said[0], f.nodes["n1"].Name, said[1], f.nodes["n2"].Name)
	default:
		line := fmt.Sprintf("cluster: kube-proxy itself says on both nodes that it runs in %s mode", said[0])
		if p.Mode != "" && p.Mode != said[0] {
			line += fmt.Sprintf(", and not %s as it seemed (%s)", p.Mode, p.Source)
		}
		f.options.Progress(line)
		if p.Mode == lab.NoKubeProxy {
			p.Version = f.nodes["n1"].Kubelet // it is no pod's
		}
		p.Mode, p.Source = said[0], "kube-proxy itself"
	}
	return nil
}

// Machine is the nodes as the machine of the cells. features are the names of all features that scenarios know; which of them the nodes'
// kernels have cannot be tried without changing the nodes, but for what the mode shows.
func (f *Fixture) Machine(features []string) lab.Machine {
	n := f.nodes["n1"]
	m := lab.Machine{Release: n.Release, CPU: "node " + n.Name, Cores: n.Cores, Features: map[string]bool{}, Unit: 1}
	for _, name := range features {
		m.Features[name] = false
	}
	m.Features["ip_vs"] = f.Proxy.Mode == lab.IPVS
	m.Features["nf_tables"] = f.Proxy.Mode == lab.NFTables
	return m
}

// families are those that the cluster's pods have.
func (f *Fixture) families() (all []lab.Family) {
	for _, family := range []lab.Family{lab.IPv4, lab.IPv6} {
		if _, ok := f.hosts["c1"].Address("primary", family); ok {
			all = append(all, family)
		}
	}
	return all
}

// ipFamilyOf is how a Service names a family.
func ipFamilyOf(family lab.Family) corev1.IPFamily {
	if family == lab.IPv6 {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}
