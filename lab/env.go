package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Family is an IP family: 4 or 6.
type Family int

const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Host is a place with a network stack of its own: a node, a pod, a machine outside the cluster.
type Host interface {
	// Name is "n1", "c1", "ext", ...
	Name() string
	// Address returns the host's address of that name ("primary", "secondary", "mgmt", "floating", "localhost").
	Address(name string, family Family) (netip.Addr, bool)
	// Do runs fn on a thread inside the host's network namespace. Sockets that fn opens stay there and may be used
	// from anywhere. fn must not start goroutines that open sockets.
	Do(fn func() error) error
	// Run runs a tool of the cell's userland on the host. The error of a failed tool is an *ExitError.
	Run(ctx context.Context, argv ...string) (stdout string, err error)
}

// Node is a host that runs kube-proxy.
type Node interface {
	Host
	Proxy() Proxy
	// SetAddress adds or removes an address on an interface of the node.
	SetAddress(ctx context.Context, iface string, prefix netip.Prefix, present bool) error
}

// Env is what a cell runs in. It is made fresh for each cell.
type Env interface {
	// Nodes returns n1, n2, ...
	Nodes() []Node
	// Host returns a node, pod or outside machine by name; the error names the nearest.
	Host(name string) (Host, error)
	// Hosts returns all hosts' names.
	Hosts() []string
	// Owner returns the name of the host that has the address, "" if none has.
	Owner(addr netip.Addr) string
	// Apply creates or updates objects as an API server would (validation, defaults, allocation) and has the env's pods
	// listen on the ports that the Services lead to.
	Apply(ctx context.Context, objects []runtime.Object) error
	// Delete removes an object. kind is "Service", "EndpointSlice", "Pod" or "Node".
	Delete(ctx context.Context, kind, namespace, name string) error
	// Service returns a Service as stored, with what was defaulted and allocated.
	Service(ctx context.Context, namespace, name string) (*corev1.Service, error)
	// Serve has a host listen on a port ("tcp", "udp" or "sctp") and answer probes with its name, as Apply does for pods.
	Serve(ctx context.Context, host, network string, port int) error
	// Evidence collects the state of every node and the API server: file name -> content.
	Evidence(ctx context.Context) map[string][]byte
	// Cluster is the cluster that the env is, nil where it is none.
	Cluster() Cluster
	// Close removes everything the env made.
	Close() error
}

// Cluster is an env with an API server, kubelets and a kube-proxy DaemonSet of its own, as kubeadm makes them. Its nodes' kube-proxies are
// the script's until it hands them over.
type Cluster interface {
	// HandOver gives kube-proxy to the DaemonSet, with o's mode, version and fields in its ConfigMap and kube-proxy's own defaults for the rest. It
	// returns when every node runs it and is synced. From then on the nodes' Proxy only observes.
	HandOver(ctx context.Context, o ProxyOptions) error
	// Configure edits config.conf in the ConfigMap kube-proxy, as kubectl edit would: dotted path -> value as YAML.
	Configure(ctx context.Context, set map[string]string) error
	// Mounted is config.conf as the kube-proxy container on a node finds it.
	Mounted(ctx context.Context, node string) (string, error)
	// Run runs kubectl, as the cluster's administrator, or kubeadm on the control plane. The error of one that failed is an *ExitError.
	Run(ctx context.Context, argv ...string) (stdout string, err error)
	// Kubernetes is the version of the control plane: "v1.37.2".
	Kubernetes() string
	// NodeName is what n1, n2, ... are called in the API.
	NodeName(node string) string
	// PauseImage is an image that every node has, of a process that waits for its end.
	PauseImage() string
}

// Partial is an env that has less than the standard one: a cluster that somebody else has made may have one IP family, and no foreign host.
type Partial interface {
	// Lacks is why a probe from a host to a place (of a target, before its port: "n1", "n1.secondary", "localhost", "svc/web") cannot be
	// made in a family, "" if it can.
	Lacks(from, place string, family Family) string
}

// AbsentError says that an env lacks what a scenario asks it for. The cell is skipped for it, unless a check has deviated before.
type AbsentError struct{ Reason string }

func (e *AbsentError) Error() string { return e.Reason }

// ProxyOptions says how to start kube-proxy on a node.
type ProxyOptions struct {
	Mode    Mode   // "" = the cell's
	Version string // "" = the cell's
	// Set changes fields of the KubeProxyConfiguration: dotted path -> value as YAML (nodePortAddresses also takes a
	// comma-separated list).
	Set map[string]string
	// Env adds to the process's environment: KEY=value.
	Env []string
	// Args adds command-line flags.
	Args []string
	// Within is how long each of its syncs may take on the reference machine; 0 means the usual 20 s.
	Within time.Duration
}

// Proxy is the kube-proxy of one node.
type Proxy interface {
	// Start starts kube-proxy and returns when it is synced, or with a *ProxyExit if it ends before.
	Start(ctx context.Context, o ProxyOptions) error
	// Stop ends it with SIGTERM, Kill with SIGKILL. Both wait until it is gone; neither touches what it programmed.
	Stop(ctx context.Context) error
	Kill(ctx context.Context) error
	// Cleanup runs kube-proxy --cleanup with the options' version and returns its log. A non-zero exit is a *ProxyExit.
	Cleanup(ctx context.Context, o ProxyOptions) (log string, err error)
	// WaitSynced returns when every change that was sent to kube-proxy is programmed.
	WaitSynced(ctx context.Context) error
	// Running reports whether it runs; after an unexpected exit the error says how it ended.
	Running() (bool, error)
	// Mode asks kube-proxy's /proxyMode.
	Mode(ctx context.Context) (string, error)
	// Metrics reads kube-proxy's /metrics.
	Metrics(ctx context.Context) (Metrics, error)
	// Log is everything that this node's kube-proxies have logged, in order.
	Log() string
	// Errors lists what they have logged as errors, each once: "file:line] message key=value ...".
	Errors() []string
}

// Metrics gives access to one scrape of kube-proxy's metrics.
type Metrics interface {
	// Sum adds up the samples of a metric whose labels include all of labels; present says whether the metric exists at
	// all. For a histogram, name it with _sum or _count.
	Sum(name string, labels map[string]string) (value float64, present bool)
	// Names lists the metric families, sorted.
	Names() []string
	// Text is the scrape as it was read.
	Text() string
}

// ProxyExit says that kube-proxy ended when it should have run, or ended badly when it should have ended well.
type ProxyExit struct {
	Node string
	Code int    // exit status; -1 when a signal ended it
	Log  string // everything this process logged
	Last string // the line that says why
}

func (e *ProxyExit) Error() string {
	return fmt.Sprintf("kube-proxy on %s exited with status %d: %s", e.Node, e.Code, e.Last)
}

// ExitError says that a tool failed: what was run, how it ended and what it said.
type ExitError struct {
	Where  string // host it ran on
	Argv   []string
	Code   int
	Stderr string
	Err    error // why it could not be started, if it could not
}

// ToolError is how a tool that was run on a host ended: nil if it ended well, or an *ExitError.
func ToolError(where string, argv []string, err error, stderr string) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit):
		return &ExitError{Where: where, Argv: argv, Code: exit.ExitCode(), Stderr: strings.TrimSpace(stderr)}
	}
	return &ExitError{Where: where, Argv: argv, Err: err}
}

func (e *ExitError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %q could not run: %v", e.Where, e.Argv, e.Err)
	}
	return fmt.Sprintf("%s: %q: exit status %d: %s", e.Where, e.Argv, e.Code, e.Stderr)
}

func (e *ExitError) Unwrap() error { return e.Err }

// SyncDeadline bounds a start or a sync of kube-proxy on the reference machine, with a second try: it retries a failed sync after 30 s.
const SyncDeadline = 45 * time.Second

// Deadlines scales durations with the machine: Unit is how many times slower it is than the reference.
type Deadlines struct{ Unit float64 }

// Of returns d scaled to the machine.
func (s Deadlines) Of(d time.Duration) time.Duration {
	return time.Duration(float64(d) * max(s.Unit, 1))
}
