package kindenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"kplab/lab"
	"kplab/lab/kubeproxy"
)

const (
	proxySelector = "k8s-app=kube-proxy" // of the DaemonSet's pods
	configKey     = "config.conf"
)

var errHandedOver = errors.New("kube-proxy is the DaemonSet's: a script acts on it by kubectl and configmap")

// Cluster implements lab.Env.
func (e *env) Cluster() lab.Cluster { return operated{e} }

// operated is the cluster as an operator has it. It implements lab.Cluster.
type operated struct{ *env }

// Kubernetes implements lab.Cluster.
func (c operated) Kubernetes() string { return c.kubernetes }

// NodeName implements lab.Cluster.
func (c operated) NodeName(node string) string { return c.nodeNames[node] }

// PauseImage implements lab.Cluster.
func (c operated) PauseImage() string { return c.options.PauseImage }

// Run implements lab.Cluster.
func (c operated) Run(ctx context.Context, argv ...string) (string, error) {
	return c.options.Administer(ctx, argv...)
}

// HandOver implements lab.Cluster.
func (c operated) HandOver(ctx context.Context, o lab.ProxyOptions) error {
	f := c.Fixture
	if f.handedOver {
		return errHandedOver
	}
	cell, scale := c.nodes[0].proxy.cell, c.nodes[0].proxy.scale
	if o.Mode == "" {
		o.Mode = cell.Mode
	}
	if o.Version == "" {
		o.Version = cell.KubeProxy
	}
	for _, n := range c.nodes {
		running, err := n.proxy.Running()
		if err != nil {
			return err
		}
		if running {
			return fmt.Errorf("%s runs a kube-proxy of the script's: stop it before the hand-over", n.Name())
		}
	}
	image, err := f.proxyImage(ctx, o.Version, f.options.ControlPlane.Name, f.nodeNames["n1"], f.nodeNames["n2"])
	if err != nil {
		return err
	}
	set := map[string]string{"mode": string(o.Mode)}
	if !f.options.KindDefaults {
		set["conntrack.tcpBeLiberal"] = "null"
	}
	for field, value := range o.Set {
		set[field] = value
	}
	f.handedOver = true
	if err := c.Configure(ctx, set); err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"kube-proxy","image":%q,"imagePullPolicy":"IfNotPresent"}]}}}}`, image)
	if _, err := f.client.AppsV1().DaemonSets(proxyNamespace).Patch(ctx, "kube-proxy", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("DaemonSet kube-proxy: %w", err)
	}
	for _, node := range f.nodeNames {
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, scriptedLabel)
		if _, err := f.client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("label node %s: %w", node, err)
		}
	}
	// The control plane's has run all along, with the old ConfigMap.
	all, err := f.managedPods(ctx, "")
	if err != nil {
		return err
	}
	for _, p := range all {
		err := f.client.CoreV1().Pods(proxyNamespace).Delete(ctx, p.Name, metav1.DeleteOptions{})
		if err != nil && !isNotFound(err) {
			return fmt.Errorf("pod %s: %w", p.Name, err)
		}
	}
	if err := f.rolledOut(ctx); err != nil {
		return err
	}
	var g errgroup.Group
	for _, n := range c.nodes {
		g.Go(func() error { return f.waitManaged(ctx, n.host, scale) })
	}
	return g.Wait()
}

// rolledOut waits until the DaemonSet's controller has seen its latest state and all its pods are of it and available.
func (f *Fixture) rolledOut(ctx context.Context) error {
	return f.poll(ctx, "kube-proxies of the DaemonSet", func() (bool, error) {
		ds, err := f.client.AppsV1().DaemonSets(proxyNamespace).Get(ctx, "kube-proxy", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		s := ds.Status
		want := int32(len(f.nodeNames) + 1) // and the control plane
		return s.ObservedGeneration >= ds.Generation && s.DesiredNumberScheduled == want && s.UpdatedNumberScheduled == want && s.NumberAvailable == want && s.NumberUnavailable == 0,
			fmt.Errorf("%d of %d are available, %d of the latest template", s.NumberAvailable, want, s.UpdatedNumberScheduled)
	})
}

// Configure implements lab.Cluster.
func (c operated) Configure(ctx context.Context, set map[string]string) error {
	maps := c.client.CoreV1().ConfigMaps(proxyNamespace)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		cm, err := maps.Get(ctx, "kube-proxy", metav1.GetOptions{})
		if err != nil {
			return err
		}
		edited, err := kubeproxy.Edit([]byte(cm.Data[configKey]), set)
		if err != nil {
			return err
		}
		cm.Data[configKey] = string(edited)
		_, err = maps.Update(ctx, cm, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("ConfigMap kube-proxy: %w", err)
	}
	return nil
}

// Mounted implements lab.Cluster: it reads the file through the process, as the process would.
func (c operated) Mounted(_ context.Context, node string) (string, error) {
	h := c.hosts[node]
	pids, err := h.processes("kube-proxy")
	if err != nil {
		return "", err
	}
	if len(pids) != 1 {
		return "", fmt.Errorf("%s: %d processes of kube-proxy: expected one", node, len(pids))
	}
	text, err := os.ReadFile(procPath(pids[0], "root"+configFolder+"/"+configKey))
	return string(text), err
}

// managedPods lists the DaemonSet's pods, of one node or of all. Those that are going are among them.
func (f *Fixture) managedPods(ctx context.Context, node string) ([]corev1.Pod, error) {
	o := metav1.ListOptions{LabelSelector: proxySelector}
	if node != "" {
		o.FieldSelector = "spec.nodeName=" + f.nodeNames[node]
	}
	list, err := f.client.CoreV1().Pods(proxyNamespace).List(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("kube-proxies of the DaemonSet: %w", err)
	}
	return list.Items, nil
}

// waitManaged waits until the DaemonSet's kube-proxy on a node has everything in its rules, in whatever mode it says it runs.
func (f *Fixture) waitManaged(ctx context.Context, n *host, scale lab.Deadlines) error {
	ctx, cancel := context.WithTimeout(ctx, scale.Of(lab.SyncDeadline))
	defer cancel()
	if err := f.mark(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(scale.Of(pollRules))
	defer tick.Stop()
	watch, look := &proxy{f: f, node: n, metrics: n.dialer()}, looker{f: f, node: n}
	for seen := 0; ; {
		mode, err := watch.Mode(ctx)
		missing := fmt.Sprintf("mode %s has no rules that the lab knows", mode)
		switch {
		case err != nil:
			missing = err.Error()
		case rules[lab.Mode(mode)] != nil:
			if missing = look.missing(ctx, lab.Mode(mode)); missing != "" {
				break
			}
			if seen++; seen == syncs(lab.Mode(mode)) {
				return nil
			}
			if err := f.mark(ctx); err != nil {
				return err
			}
			missing, look = "the next sync", looker{f: f, node: n}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: the DaemonSet's kube-proxy has not programmed the Service that was created last: %s (%w)", n.Name(), missing, context.Cause(ctx))
		}
	}
}

// managedLogs are the logs of the DaemonSet's pods on a node, of their last two containers each.
func (f *Fixture) managedLogs(ctx context.Context, n *host) string {
	pods, err := f.managedPods(ctx, n.Name())
	if err != nil {
		return fmt.Sprintf("# %v\n", err)
	}
	var all strings.Builder
	for _, p := range pods {
		logs := n.podLogs(&p)
		for _, path := range logs[max(0, len(logs)-2):] {
			fmt.Fprintf(&all, "==== %s: kube-proxy of the DaemonSet, pod %s, created %s, container %s\n%s", n.Name(), p.Name, p.CreationTimestamp.UTC().Format(time.RFC3339),
				strings.TrimSuffix(filepath.Base(path), ".log"), readLog(path))
		}
	}
	return all.String()
}

// takeBack undoes a hand-over: DaemonSet and ConfigMap as they were, nodes that take pods, and no kube-proxy on the workers.
func (f *Fixture) takeBack(ctx context.Context) error {
	if !f.handedOver {
		return nil
	}
	if err := f.removeWorkloads(ctx); err != nil {
		return err
	}
	core, sets := f.client.CoreV1(), f.client.AppsV1().DaemonSets(proxyNamespace)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		cm, err := core.ConfigMaps(proxyNamespace).Get(ctx, "kube-proxy", metav1.GetOptions{})
		if err != nil {
			return err
		}
		cm.Data, cm.Annotations = f.configMap.Data, f.configMap.Annotations
		_, err = core.ConfigMaps(proxyNamespace).Update(ctx, cm, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("ConfigMap kube-proxy: %w", err)
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		ds, err := sets.Get(ctx, "kube-proxy", metav1.GetOptions{})
		if err != nil {
			return err
		}
		ds.Spec.Template, ds.Spec.UpdateStrategy = f.daemonSet.Spec.Template, f.daemonSet.Spec.UpdateStrategy
		_, err = sets.Update(ctx, ds, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("DaemonSet kube-proxy: %w", err)
	}
	nodes, err := core.Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, n := range nodes.Items {
		if !n.Spec.Unschedulable {
			continue
		}
		if _, err := core.Nodes().Patch(ctx, n.Name, types.MergePatchType, []byte(`{"spec":{"unschedulable":null}}`), metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("uncordon %s: %w", n.Name, err)
		}
	}
	if err := f.keepDaemonSetAway(ctx); err != nil {
		return err
	}
	f.handedOver = false
	return nil
}

// keepDaemonSetAway marks the workers as the script's and waits until the DaemonSet's kube-proxies have left them.
func (f *Fixture) keepDaemonSetAway(ctx context.Context) error {
	for _, node := range f.nodeNames {
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"true"}}}`, scriptedLabel)
		if _, err := f.client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("label node %s: %w", node, err)
		}
	}
	return f.poll(ctx, "kube-proxies of the DaemonSet on the workers", func() (bool, error) {
		pods, err := f.managedPods(ctx, "")
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(pods, func(p corev1.Pod) bool {
			return p.Spec.NodeName == f.nodeNames["n1"] || p.Spec.NodeName == f.nodeNames["n2"]
		}), errors.New("some are there still")
	})
}

// removeWorkloads removes what a script has made by kubectl where cells write: Deployments, and pods that are not the fixture's.
func (f *Fixture) removeWorkloads(ctx context.Context) error {
	now := int64(0)
	err := f.client.AppsV1().Deployments(corev1.NamespaceDefault).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("deployments of the cell: %w", err)
	}
	pods := f.client.CoreV1().Pods(corev1.NamespaceDefault)
	return f.poll(ctx, "pods that the cell made are gone", func() (bool, error) {
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		var left []string
		for _, p := range list.Items {
			if f.spec(p.Name) != nil {
				continue
			}
			left = append(left, p.Name)
			if err := pods.Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil && !isNotFound(err) {
				return false, err
			}
		}
		return len(left) == 0, fmt.Errorf("left: %s", strings.Join(left, ", "))
	})
}
