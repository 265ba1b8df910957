package usercluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kplab/lab"
	"kplab/lab/kubeproxy"
)

const kubeProxyPort = 10249 // of its metrics server on 127.0.0.1

// errNotOurs is what every attempt to act on the cluster's kube-proxy comes to.
var errNotOurs = errors.New("kube-proxy is the cluster's: a scenario observes it and does nothing to it")

// node is a node with its kube-proxy, which runs already. It implements lab.Node.
type node struct {
	*host
	proxy *proxy
}

// Proxy implements lab.Node.
func (n *node) Proxy() lab.Proxy { return n.proxy }

// SetAddress implements lab.Node.
func (n *node) SetAddress(context.Context, string, netip.Prefix, bool) error {
	return fmt.Errorf("%s: addresses of a node that is in use are not changed", n.name)
}

// proxy is what implements Services on a node, as far as it can be seen. It implements lab.Proxy.
type proxy struct {
	env      *env
	node     *host
	pod      string // of kube-proxy, "" where it has none
	restarts int32
	identity string // of the pod
}

// Start implements lab.Proxy: it runs.
func (p *proxy) Start(ctx context.Context, o lab.ProxyOptions) error {
	if o.Mode != "" || o.Version != "" || len(o.Set)+len(o.Env)+len(o.Args) > 0 {
		return errNotOurs
	}
	return p.WaitSynced(ctx)
}

// Stop implements lab.Proxy.
func (p *proxy) Stop(context.Context) error { return errNotOurs }

// Kill implements lab.Proxy.
func (p *proxy) Kill(context.Context) error { return errNotOurs }

// Cleanup implements lab.Proxy.
func (p *proxy) Cleanup(context.Context, lab.ProxyOptions) (string, error) { return "", errNotOurs }

// WaitSynced implements lab.Proxy: it looks from the client pod on the node.
func (p *proxy) WaitSynced(ctx context.Context) error {
	client := map[string]string{"n1": "c1", "n2": "c2"}[p.node.name]
	return p.env.waitMarker(ctx, p.env.hosts[client])
}

// look reads the state of kube-proxy's container.
func (p *proxy) look(ctx context.Context) (identity string, restarts int32, err error) {
	pod, err := p.env.client.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, p.pod, metav1.GetOptions{})
	if err != nil {
		return "", 0, fmt.Errorf("kube-proxy of %s: pod %s: %w", p.node.name, p.pod, err)
	}
	for _, s := range pod.Status.ContainerStatuses {
		restarts += s.RestartCount
	}
	return string(pod.UID), restarts, nil
}

// Running implements lab.Proxy. That kube-proxy was restarted or replaced while the cell ran is an error: what the cell saw is of both.
func (p *proxy) Running() (bool, error) {
	if p.pod == "" {
		return true, nil
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), closeDeadline, errNoTime)
	defer cancel()
	identity, restarts, err := p.look(ctx)
	if err == nil && (identity != p.identity || restarts != p.restarts) {
		err = fmt.Errorf("kube-proxy on %s (pod %s) was restarted while the cell ran", p.node.name, p.pod)
	}
	return err == nil, err
}

// Mode implements lab.Proxy.
func (p *proxy) Mode(ctx context.Context) (string, error) {
	if p.env.Proxy.Mode == lab.NoKubeProxy || p.node.client == nil {
		return string(p.env.Proxy.Mode), nil
	}
	text, err := p.node.client.Get(ctx, kubeProxyPort, "/proxyMode")
	if err != nil && p.env.Proxy.Source != "kube-proxy itself" {
		return string(p.env.Proxy.Mode), nil // it could not be asked from the beginning, and that was said
	}
	return strings.TrimSpace(text), err
}

// Metrics implements lab.Proxy. The value is a *kubeproxy.Metrics.
func (p *proxy) Metrics(ctx context.Context) (lab.Metrics, error) {
	if p.env.Proxy.Mode == lab.NoKubeProxy || p.node.client == nil {
		return nil, fmt.Errorf("%s: the metrics of kube-proxy cannot be read", p.node.name)
	}
	text, err := p.node.client.Get(ctx, kubeProxyPort, "/metrics")
	if err != nil {
		return nil, err
	}
	return kubeproxy.ParseMetrics(text)
}

// Log implements lab.Proxy: what it has logged since the run began.
func (p *proxy) Log() string {
	if p.pod == "" {
		return ""
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), closeDeadline, errNoTime)
	defer cancel()
	since := metav1.NewTime(p.env.since)
	title := fmt.Sprintf("==== %s: kube-proxy, pod %s, since %s\n", p.node.name, p.pod, since.UTC().Format(time.RFC3339))
	stream, err := p.env.client.CoreV1().Pods(metav1.NamespaceSystem).GetLogs(p.pod, &corev1.PodLogOptions{SinceTime: &since}).Stream(ctx)
	if err != nil {
		return fmt.Sprintf("%s# %v\n", title, err)
	}
	defer stream.Close()
	text, err := io.ReadAll(stream)
	if err != nil {
		text = fmt.Appendf(text, "\n# %v\n", err)
	}
	return title + string(text)
}

// Errors implements lab.Proxy.
func (p *proxy) Errors() []string { return kubeproxy.ErrorsIn(p.Log()) }
