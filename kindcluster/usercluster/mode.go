package usercluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"kplab/lab"
	"kplab/lab/script"
)

// ServiceProxy is what implements Services in a cluster.
type ServiceProxy struct {
	Mode    lab.Mode // lab.NoKubeProxy where it is not kube-proxy; "" while that is not known
	Source  string   // who says the mode
	Version string   // of kube-proxy, without v, or the name of what stands in for it: "cilium-1.18.2", "unknown"
	Note    string   // what else there is to say, as a sentence without its end
	pods    [2]string
}

// kubeProxyLabels are the labels of kube-proxy's pods in kube-system: kubeadm's DaemonSet, and the static pods of some distributions.
var kubeProxyLabels = []string{"k8s-app=kube-proxy", "component=kube-proxy"}

// others are what may implement Services without kube-proxy, by a label of its pods on the nodes.
var others = []struct{ name, label string }{
	{"cilium", "k8s-app=cilium"},
	{"calico", "k8s-app=calico-node"},
	{"kube-router", "k8s-app=kube-router"},
	{"antrea", "app=antrea"},
}

// findServiceProxy finds out what implements Services on two nodes. An answer that the user's rights do not let it find leaves the mode unknown.
func (c *Cluster) findServiceProxy(ctx context.Context, nodes [2]Node) (ServiceProxy, error) {
	var found []corev1.Pod
	for _, label := range kubeProxyLabels {
		list, err := c.client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: label})
		if err != nil {
			return ServiceProxy{Version: nodes[0].Kubelet, Note: fmt.Sprintf("the pods of %s cannot be listed (%v)", metav1.NamespaceSystem, err)}, ctx.Err()
		}
		found = append(found, list.Items...)
	}
	var on [2]*corev1.Pod
	for i, n := range nodes {
		if at := slices.IndexFunc(found, func(p corev1.Pod) bool { return p.Spec.NodeName == n.Name && p.DeletionTimestamp == nil }); at >= 0 {
			on[i] = &found[at]
		}
	}
	switch {
	case on[0] == nil && on[1] == nil:
		return c.withoutPods(ctx, nodes)
	case on[0] == nil || on[1] == nil:
		runs, lacks := 0, 1
		if on[0] == nil {
			runs, lacks = 1, 0
		}
		return ServiceProxy{}, fmt.Errorf("context %s: kube-proxy runs on node %s (pod %s) and not on %s: what a run would show is of neither", c.Context, nodes[runs].Name, on[runs].Name, nodes[lacks].Name)
	}
	p := ServiceProxy{pods: [2]string{on[0].Name, on[1].Name}}
	p.Version = versionOf(*on[0], nodes[0])
	if v := versionOf(*on[1], nodes[1]); v != p.Version {
		p.Note = fmt.Sprintf("kube-proxy is %s on %s and %s on %s", p.Version, nodes[0].Name, v, nodes[1].Name)
	}
	p.Mode, p.Source = c.modeOf(ctx, on[0].Name, p.Version)
	return p, ctx.Err()
}

// withoutPods is for a cluster in which kube-proxy has no pod on the nodes.
func (c *Cluster) withoutPods(ctx context.Context, nodes [2]Node) (ServiceProxy, error) {
	if strings.Contains(nodes[0].Kubelet, "+k3s") {
		return ServiceProxy{Version: nodes[0].Kubelet, Note: "k3s runs kube-proxy in its own process"}, nil
	}
	p := ServiceProxy{Mode: lab.NoKubeProxy, Source: "no pod of kube-proxy is on the nodes", Version: "unknown"}
	for _, o := range others {
		list, err := c.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: o.label})
		if err != nil {
			continue // it may list those of kube-system only
		}
		for _, pod := range list.Items {
			if pod.Spec.NodeName == nodes[0].Name {
				p.Version = o.name
				if tag := tagOf(pod.Spec.Containers[0].Image); tag != "" {
					p.Version += "-" + tag
				}
				return p, nil
			}
		}
	}
	return p, ctx.Err()
}

// versionOf is the version of a kube-proxy by its image's tag; one without is of the kubelet's.
func versionOf(pod corev1.Pod, n Node) string {
	for _, container := range pod.Spec.Containers {
		if tag := tagOf(container.Image); tag != "" && (container.Name == "kube-proxy" || len(pod.Spec.Containers) == 1) {
			return tag
		}
	}
	return n.Kubelet
}

// tagOf is an image's tag without v: "1.37.2" of "registry.k8s.io/kube-proxy:v1.37.2@sha256:...".
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		return strings.TrimPrefix(image[i+1:], "v")
	}
	return ""
}

const (
	metricsPort      = "10249" // kube-proxy's, where /proxyMode is
	proxyGetDeadline = 5 * time.Second
)

// modeOf asks for the mode: kube-proxy itself by way of the API server, its log, and last its ConfigMap, whose change restarts nothing. The
// first that answers is believed; kube-proxy is asked again on the node once there is a pod (see Fixture).
func (c *Cluster) modeOf(ctx context.Context, pod, version string) (mode lab.Mode, source string) {
	if text, err := c.proxyGet(ctx, pod, "/proxyMode"); err == nil {
		if m, err := lab.ParseMode(strings.TrimSpace(text)); err == nil {
			return m, "its /proxyMode"
		}
	}
	if m, err := c.modeLogged(ctx, pod); err == nil {
		return m, "its log"
	}
	if m, err := c.modeConfigured(ctx, version); err == nil {
		return m, "its ConfigMap"
	}
	return "", ""
}

// proxyGet reads a page of kube-proxy's through the API server. With kube-proxy's default, which binds it to 127.0.0.1, that cannot work.
func (c *Cluster) proxyGet(ctx context.Context, pod, path string) (string, error) {
	get := c.client.CoreV1().Pods(metav1.NamespaceSystem).ProxyGet("http", pod, metricsPort, path, nil)
	if get == nil {
		return "", errors.New("no way through the API server")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, proxyGetDeadline, errNoTime)
	defer cancel()
	text, err := get.DoRaw(ctx)
	return string(text), err
}

// configMaps are where distributions keep kube-proxy's configuration: kubeadm, EKS.
var configMaps = []struct{ name, key string }{{"kube-proxy", "config.conf"}, {"kube-proxy-config", "config"}}

func (c *Cluster) modeConfigured(ctx context.Context, version string) (lab.Mode, error) {
	var errs []error
	for _, m := range configMaps {
		cm, err := c.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, m.name, metav1.GetOptions{})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		text, ok := cm.Data[m.key]
		if !ok {
			errs = append(errs, fmt.Errorf("ConfigMap %s has no %s", m.name, m.key))
			continue
		}
		var config v1alpha1.KubeProxyConfiguration
		if err := yaml.Unmarshal([]byte(text), &config); err != nil {
			errs = append(errs, fmt.Errorf("ConfigMap %s, %s: %w", m.name, m.key, err))
			continue
		}
		if config.Mode == "" {
			return defaultMode(version), nil
		}
		return lab.ParseMode(string(config.Mode))
	}
	return "", errors.Join(errs...)
}

// defaultMode is what a configuration without a mode means: iptables, and nftables from 1.40 (KEP-5343).
func defaultMode(version string) lab.Mode {
	if script.CompareVersions(version, "1.40") >= 0 {
		return lab.NFTables
	}
	return lab.IPTables
}

// logLine is what every kube-proxy logs at its start (cmd/kube-proxy/app/server_linux.go).
var logLine = regexp.MustCompile(`Using (ipvs|iptables|nftables) Proxier`)

func (c *Cluster) modeLogged(ctx context.Context, pod string) (lab.Mode, error) {
	limit := int64(1 << 20) // the line is among the first
	stream, err := c.client.CoreV1().Pods(metav1.NamespaceSystem).GetLogs(pod, &corev1.PodLogOptions{LimitBytes: &limit}).Stream(ctx)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	text, err := io.ReadAll(stream)
	if err != nil {
		return "", err
	}
	m := logLine.FindSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("the log of pod %s does not say the mode", pod)
	}
	return lab.Mode(m[1]), nil
}
