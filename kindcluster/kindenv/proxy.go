package kindenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kplab/lab"
	"kplab/lab/kubeproxy"
)

const (
	proxyNamespace = metav1.NamespaceSystem
	configFolder   = "/var/lib/kube-proxy"
	termGrace      = 10 * time.Second
	pollPod        = 50 * time.Millisecond
	pollProcess    = 20 * time.Millisecond
)

// proxy is the kube-proxy of one node: a pod made from the template of the cluster's DaemonSet, with a configuration of its own, and never
// restarted, so that an exit is seen. It implements lab.Proxy.
type proxy struct {
	f       *Fixture
	node    *host
	cell    lab.Cell
	scale   lab.Deadlines
	metrics *http.Client

	mu      sync.Mutex
	current *proxyPod // nil when none was started, or the last was stopped
	past    []string  // logs of those before
}

// proxyPod is one pod, or one that was.
type proxyPod struct {
	name    string
	made    *corev1.Pod
	title   string
	version string
	mode    lab.Mode
	began   time.Time
	told    bool // its unexpected end was returned to a caller
}

func (p *proxy) pods() podClient { return p.f.client.CoreV1().Pods(proxyNamespace) }

// Start implements lab.Proxy.
func (p *proxy) Start(ctx context.Context, o lab.ProxyOptions) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.f.handedOver {
		return errHandedOver
	}
	if p.current != nil {
		switch exit, err := p.ended(ctx, p.current); {
		case err != nil:
			return err
		case exit == nil:
			return fmt.Errorf("%s: kube-proxy %s is running already", p.node.Name(), p.current.title)
		}
		if err := p.bury(ctx, p.current); err != nil {
			return err
		}
	}
	pod, err := p.create(ctx, o, "")
	if err != nil {
		return err
	}
	p.current = pod
	return p.waitSynced(ctx, pod)
}

// create makes the pod. Extra arguments come after --config.
func (p *proxy) create(ctx context.Context, o lab.ProxyOptions, verb string) (*proxyPod, error) {
	pod := &proxyPod{mode: o.Mode, version: o.Version, began: time.Now()}
	if pod.mode == "" {
		pod.mode = p.cell.Mode
	}
	if pod.version == "" {
		pod.version = p.cell.KubeProxy
	}
	pod.title = pod.version + " " + string(pod.mode)
	pod.name = fmt.Sprintf("kube-proxy-%s-%d", p.node.Name(), p.f.serial.Add(1))
	image, err := p.f.proxyImage(ctx, pod.version, p.f.nodeNames[p.node.Name()])
	if err != nil {
		return nil, err
	}
	set := map[string]string{}
	if p.f.options.KindDefaults && pod.mode == lab.NFTables {
		set["conntrack.tcpBeLiberal"] = "true" // what kind writes into its ConfigMap (kind PR 3588)
	}
	for k, v := range o.Set {
		set[k] = v
	}
	config, err := kubeproxy.Config{
		Mode: pod.mode, NodeName: p.f.nodeNames[p.node.Name()], ClusterCIDR: p.f.clusterCIDR,
		Kubeconfig: configFolder + "/kubeconfig.conf", Set: set,
	}.YAML()
	if err != nil {
		return nil, err
	}
	_, err = p.f.client.CoreV1().ConfigMaps(proxyNamespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: pod.name, Labels: cellLabel},
		Data:       map[string]string{"config.conf": string(config), "kubeconfig.conf": p.f.configMap.Data["kubeconfig.conf"]},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("ConfigMap of %s: %w", pod.name, err)
	}
	spec := p.f.daemonSet.Spec.Template.Spec.DeepCopy()
	spec.NodeName, spec.NodeSelector, spec.Affinity = p.f.nodeNames[p.node.Name()], nil, nil
	spec.RestartPolicy = corev1.RestartPolicyNever
	for i := range spec.Volumes {
		if c := spec.Volumes[i].ConfigMap; c != nil {
			c.Name = pod.name
		}
	}
	c := &spec.Containers[0]
	c.Image, c.ImagePullPolicy = image, corev1.PullNever
	if verb != "" {
		c.Command = append(c.Command, verb)
	}
	c.Command = append(c.Command, o.Args...)
	c.Env = append(c.Env, corev1.EnvVar{Name: "TZ", Value: "UTC"})
	for _, e := range o.Env {
		name, value, _ := strings.Cut(e, "=")
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
	}
	pod.made, err = p.pods().Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod.name, Labels: cellLabel}, Spec: *spec}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", pod.name, err)
	}
	return pod, nil
}

// until waits until the container's status is as wanted, and returns it; nil if the pod is gone.
func (p *proxy) until(ctx context.Context, pod *proxyPod, wanted func(*corev1.ContainerStatus) bool) (*corev1.ContainerStatus, error) {
	tick := time.NewTicker(p.scale.Of(pollPod))
	defer tick.Stop()
	why := "it has no status yet"
	for {
		got, err := p.pods().Get(ctx, pod.name, metav1.GetOptions{})
		switch {
		case isNotFound(err):
			return nil, nil
		case err != nil && ctx.Err() == nil:
			return nil, fmt.Errorf("pod %s: %w", pod.name, err)
		case err == nil && len(got.Status.ContainerStatuses) > 0:
			s := &got.Status.ContainerStatuses[0]
			if wanted(s) {
				return s, nil
			}
			if w := s.State.Waiting; w != nil {
				why = w.Reason + " " + w.Message
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("pod %s on %s: %s (%w)", pod.name, p.node.Name(), why, context.Cause(ctx))
		}
	}
}

// ended returns how the pod's kube-proxy exited, nil while it runs.
func (p *proxy) ended(ctx context.Context, pod *proxyPod) (*lab.ProxyExit, error) {
	got, err := p.pods().Get(ctx, pod.name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", pod.name, err)
	}
	if len(got.Status.ContainerStatuses) == 0 {
		return nil, nil
	}
	state := got.Status.ContainerStatuses[0].State
	if w := state.Waiting; w != nil && strings.Contains(w.Reason, "Err") { // ErrImageNeverPull, CreateContainerError
		return nil, fmt.Errorf("pod %s on %s: %s: %s", pod.name, p.node.Name(), w.Reason, w.Message)
	}
	t := state.Terminated
	if t == nil {
		return nil, nil
	}
	code := int(t.ExitCode)
	if t.Signal != 0 || code > 128 {
		code = -1
	}
	log := p.podLog(pod)
	return &lab.ProxyExit{Node: p.node.Name(), Code: code, Log: log, Last: kubeproxy.ExitReason(log)}, nil
}

// alive is an error once the pod's kube-proxy has ended.
func (p *proxy) alive(ctx context.Context, pod *proxyPod) error {
	exit, err := p.ended(ctx, pod)
	if exit == nil {
		return err
	}
	pod.told = true
	return exit
}

// WaitSynced implements lab.Proxy.
func (p *proxy) WaitSynced(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.f.handedOver {
		return p.f.waitManaged(ctx, p.node, p.scale)
	}
	if p.current == nil {
		return fmt.Errorf("%s: kube-proxy is not running", p.node.Name())
	}
	return p.waitSynced(ctx, p.current)
}

func (p *proxy) waitSynced(ctx context.Context, pod *proxyPod) error {
	ctx, cancel := context.WithTimeout(ctx, p.scale.Of(lab.SyncDeadline))
	defer cancel()
	for range syncs(pod.mode) {
		if err := p.f.mark(ctx); err != nil {
			return err
		}
		if err := p.f.awaitMark(ctx, p.node, pod.mode, func() error { return p.alive(ctx, pod) }); err != nil {
			return err
		}
	}
	return nil
}

// Stop implements lab.Proxy.
func (p *proxy) Stop(ctx context.Context) error { return p.end(ctx, syscall.SIGTERM) }

// Kill implements lab.Proxy.
func (p *proxy) Kill(ctx context.Context) error { return p.end(ctx, syscall.SIGKILL) }

// end signals the process, as the kubelet would, and takes the pod's log before the pod goes.
func (p *proxy) end(ctx context.Context, sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.f.handedOver {
		return errHandedOver
	}
	pod := p.current
	if pod == nil {
		return nil
	}
	exit, err := p.ended(ctx, pod)
	if err != nil {
		return err
	}
	var unexpected error
	if exit != nil && !pod.told {
		unexpected = exit
	}
	if exit == nil {
		if err := p.signal(sig); err != nil {
			return err
		}
		if err := p.awaitEnd(ctx); err != nil {
			return err
		}
	}
	return errors.Join(unexpected, p.bury(ctx, pod))
}

// awaitEnd waits until no kube-proxy runs in the node's network namespace. The kubelet sees an end up to a second later.
func (p *proxy) awaitEnd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.scale.Of(termGrace))
	defer cancel()
	tick := time.NewTicker(p.scale.Of(pollProcess))
	defer tick.Stop()
	for {
		runs, err := p.node.runs("kube-proxy")
		if err != nil || !runs {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: kube-proxy has not ended: %w", p.node.Name(), context.Cause(ctx))
		}
	}
}

// bury keeps the log of the current pod, which has ended, and removes it.
func (p *proxy) bury(ctx context.Context, pod *proxyPod) error {
	p.past = append(p.past, p.logOf(pod))
	p.current = nil
	return p.remove(ctx, pod)
}

func (p *proxy) remove(ctx context.Context, pod *proxyPod) error {
	now := int64(0)
	err := p.pods().Delete(ctx, pod.name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if isNotFound(err) {
		err = nil
	}
	return errors.Join(err, p.f.client.CoreV1().ConfigMaps(proxyNamespace).Delete(ctx, pod.name, metav1.DeleteOptions{}))
}

// signal sends a signal to the kube-proxy in the node's network namespace.
func (p *proxy) signal(sig syscall.Signal) error {
	pids, err := p.node.processes("kube-proxy")
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("%s: signal kube-proxy, process %d: %w", p.node.Name(), pid, err)
		}
	}
	return nil
}

// runs reports whether a node runs a program of that name, itself or in a pod, by the node's own /proc: it is a tenth as long as this machine's.
func (h *host) runs(name string) (bool, error) {
	own := procPath(h.root, "root/proc")
	entries, err := os.ReadDir(own)
	if err != nil {
		return false, fmt.Errorf("processes of %s: %w", h.Name(), err)
	}
	for _, e := range entries {
		if first := e.Name()[0]; first < '1' || first > '9' {
			continue
		}
		// PID (NAME) STATE ...; Z has ended.
		stat, err := os.ReadFile(filepath.Join(own, e.Name(), "stat"))
		if err != nil {
			continue // it has just ended
		}
		if _, after, ok := bytes.Cut(stat, []byte(" ("+name+") ")); ok && after[0] != 'Z' {
			return true, nil
		}
	}
	return false, nil
}

// processes lists, by their numbers on this machine, the processes of that name in the host's network namespace.
func (h *host) processes(name string) (pids []int, err error) {
	want, err := os.Stat(h.netns)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			continue
		}
		comm, err := os.ReadFile(procPath(pid, "comm"))
		if err != nil || strings.TrimSpace(string(comm)) != name {
			continue
		}
		if ns, err := os.Stat(procPath(pid, "ns/net")); err == nil && os.SameFile(ns, want) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Cleanup implements lab.Proxy.
func (p *proxy) Cleanup(ctx context.Context, o lab.ProxyOptions) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.f.handedOver {
		return "", errHandedOver
	}
	pod, err := p.create(ctx, o, "--cleanup")
	if err != nil {
		return "", err
	}
	_, err = p.until(ctx, pod, func(s *corev1.ContainerStatus) bool { return s.State.Terminated != nil })
	if err != nil {
		return "", err
	}
	exit, err := p.ended(ctx, pod)
	if err != nil {
		return "", err
	}
	p.past = append(p.past, p.logOf(pod))
	if err := p.remove(ctx, pod); err != nil {
		return exit.Log, err
	}
	if exit.Code != 0 {
		return exit.Log, exit
	}
	return exit.Log, nil
}

// Running implements lab.Proxy. The API server is asked only what the node's processes do not tell: a script that waits asks 50 times a second.
func (p *proxy) Running() (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil && !p.f.handedOver {
		return false, nil
	}
	// Whether one that the DaemonSet runs should run is for the script to say.
	if runs, err := p.node.runs("kube-proxy"); err != nil || runs || p.f.handedOver {
		return runs, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.scale.Of(termGrace))
	defer cancel()
	told := p.current.told
	err := p.alive(ctx, p.current)
	var exit *lab.ProxyExit
	if errors.As(err, &exit) {
		if told {
			err = nil
		}
		return false, err
	}
	return err == nil, err
}

// get reads a path of kube-proxy's metrics server.
func (p *proxy) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10249"+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := p.metrics.Do(req)
	if err != nil {
		return "", fmt.Errorf("%s: kube-proxy's %s: %w", p.node.Name(), path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("HTTP status %s: %.200q", resp.Status, body)
	}
	if err != nil {
		return "", fmt.Errorf("%s: kube-proxy's %s: %w", p.node.Name(), path, err)
	}
	return string(body), nil
}

// dialer connects from a host's network namespace.
func (h *host) dialer() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, // a connection outlives neither a kube-proxy nor a cell
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = h.Do(func() error {
				conn, err = new(net.Dialer).DialContext(ctx, network, address)
				return err
			})
			return conn, err
		},
	}}
}

// Mode implements lab.Proxy.
func (p *proxy) Mode(ctx context.Context) (string, error) {
	mode, err := p.get(ctx, "/proxyMode")
	return strings.TrimSpace(mode), err
}

// Metrics implements lab.Proxy. The value is a *kubeproxy.Metrics.
func (p *proxy) Metrics(ctx context.Context) (lab.Metrics, error) {
	text, err := p.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	return kubeproxy.ParseMetrics(text)
}

// Log implements lab.Proxy.
func (p *proxy) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	logs := p.past
	if p.f.handedOver {
		ctx, cancel := context.WithTimeout(context.Background(), p.scale.Of(termGrace))
		defer cancel()
		logs = append(logs[:len(logs):len(logs)], p.f.managedLogs(ctx, p.node))
	}
	if p.current != nil {
		logs = append(logs[:len(logs):len(logs)], p.logOf(p.current))
	}
	return strings.Join(logs, "")
}

func (p *proxy) logOf(pod *proxyPod) string {
	return fmt.Sprintf("==== %s: kube-proxy %s, pod %s, started %s\n%s", p.node.Name(), pod.title, pod.name, pod.began.UTC().Format(time.RFC3339Nano), p.podLog(pod))
}

// Errors implements lab.Proxy.
func (p *proxy) Errors() []string { return kubeproxy.ErrorsIn(p.Log()) }
