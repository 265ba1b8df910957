package kindcluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
	"sigs.k8s.io/kind/pkg/cluster"
	"sigs.k8s.io/kind/pkg/cluster/constants"
	"sigs.k8s.io/kind/pkg/cluster/nodes"
	"sigs.k8s.io/kind/pkg/exec"

	"kplab/lab"
)

// network is the engine's network that clusters of the lab are on, with the addresses of the standard topology.
const network = Prefix

var subnets = []string{"192.168.10.0/24", "fd00:10::/64"}

// Options say what cluster to make.
type Options struct {
	Engine  *Engine
	Name    string // without the prefix
	Image   string // of the nodes
	Workers int    // 0: two
	Mode    lab.Mode
	Logs    string // folder that keeps the nodes' logs if the creation fails
	Slower  lab.Deadlines
	Folder  string            // of the engine's machine, for files that nodes of a slow one mount
	Steps   func(line string) // is told how long each step took; nil for nobody
}

// Cluster is a kind cluster.
type Cluster struct {
	Name         string
	Kubeconfig   []byte // of the administrator, as of inside the control plane's network namespace
	ControlPlane Node
	Workers      []Node
	engine       *Engine
	image        string
	provider     *cluster.Provider
	nodes        []nodes.Node
}

// Node is a node of the cluster.
type Node struct {
	Name string // of the container and in the API
	PID  int    // of the container's first process, on the engine's machine
}

// readyDeadline is for a machine whose unit is 1, and so is kubeadmDeadline, kubeadm's own default.
const (
	readyDeadline   = 5 * time.Minute
	kubeadmDeadline = 4 * time.Minute
)

// controlPlane is for a cluster that lives for minutes: keys that are made quickly, no flush to a disk that goes with it, garbage
// collected a quarter as often, and no election every other second among one controller manager or one scheduler.
const controlPlane = `apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
encryptionAlgorithm: ECDSA-P256
apiServer:
  extraEnvs:
  - {name: GOGC, value: "400"}
controllerManager:
  extraEnvs:
  - {name: GOGC, value: "400"}
  extraArgs:
  - {name: leader-elect, value: "false"}
scheduler:
  extraArgs:
  - {name: leader-elect, value: "false"}
etcd:
  local:
    extraEnvs:
    - {name: GOGC, value: "400"}
    extraArgs:
    - {name: unsafe-no-fsync, value: "true"}
`

// slowControlPlane is, besides, for a machine on which a cluster that only runs takes every cycle that there is: of the controllers those that scenarios
// need are left.
const slowControlPlane = `apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
apiServer:
  extraArgs:
  - {name: enable-priority-and-fairness, value: "false"}
  - {name: request-timeout, value: 10m}
controllerManager:
  extraArgs:
  - {name: node-monitor-grace-period, value: 30m}
  - name: controllers
    value: serviceaccount-token-controller,serviceaccount-controller,root-ca-certificate-publisher-controller,bootstrap-signer-controller,certificatesigningrequest-approving-controller,certificatesigningrequest-signing-controller,clusterrole-aggregation-controller,node-ipam-controller,node-lifecycle-controller,taint-eviction-controller,daemonset-controller,deployment-controller,replicaset-controller,endpointslice-controller,namespace-controller,garbage-collector-controller,service-cidr-controller
etcd:
  local:
    extraArgs:
    - {name: heartbeat-interval, value: "1000"}
    - {name: election-timeout, value: "10000"}
`

// slowKubelet says less often that all is well.
const slowKubelet = `kind: KubeletConfiguration
failCgroupV1: false
nodeStatusUpdateFrequency: 2m
nodeStatusReportFrequency: 10m
nodeLeaseDurationSeconds: 1200
volumeStatsAggPeriod: -1s
`

// patientPods are the control plane's pods that a kubelet would kill when they answer late, with 15 seconds for an answer.
var patientPods = []string{"kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler"}

const patches = "/kplab-patches"

// slow reports whether the machine is.
func (o *Options) slow() bool { return o.Slower.Unit > slowUnit }

// slowUnit is beyond what a busy machine is slower than an idle one.
const slowUnit = 3

// patient has kubeadm write static pods that are not killed for being slow.
func (o *Options) patient(config *v1alpha4.Cluster) error {
	folder := filepath.Join(o.Folder, "patches")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, name := range patientPods {
		patch := fmt.Sprintf("spec:\n  containers:\n  - name: %s\n    livenessProbe: {failureThreshold: 10000}\n", name)
		if err := os.WriteFile(filepath.Join(folder, name+"+strategic.yaml"), []byte(patch), 0o644); err != nil {
			return err
		}
	}
	config.Nodes[0].ExtraMounts = append(config.Nodes[0].ExtraMounts, v1alpha4.Mount{HostPath: folder, ContainerPath: patches, Readonly: true})
	config.KubeadmConfigPatches = append(config.KubeadmConfigPatches, "kind: InitConfiguration\npatches:\n  directory: "+patches+"\n")
	return nil
}

// kubelet has Debian 12's systemd run on cgroup v1 too. A kubelet brings a pod's ConfigMap up to date at its next sync of the pod: after seconds
// here, where it is a minute by default.
const kubelet = "kind: KubeletConfiguration\nfailCgroupV1: false\nsyncFrequency: 5s\n"

// Create makes a dual-stack cluster of one control plane and workers and returns when it is ready. What it made is gone again if
// it fails or ctx ends; the error names the folder that the logs are in.
func Create(ctx context.Context, o Options) (_ *Cluster, err error) {
	if err := o.Engine.bridged(); err != nil {
		return nil, err
	}
	if err := o.Engine.roomForCluster(ctx); err != nil {
		return nil, err
	}
	if err := o.makeNetwork(ctx); err != nil {
		return nil, err
	}
	own, err := o.Engine.ownImage(ctx, o.Image)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Name: Prefix + "-" + o.Name, engine: o.Engine, image: o.Image, provider: o.Engine.provider()}
	if o.Steps != nil {
		c.provider = o.Engine.provider(cluster.ProviderWithLogger(&steps{say: o.Steps}))
	}
	dir, err := os.MkdirTemp("", Prefix+"-kubeconfig-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	defer func() {
		if err == nil {
			return
		}
		after := context.WithoutCancel(ctx)
		if o.Logs != "" && ctx.Err() == nil {
			// What it could not collect is not there.
			_ = o.Engine.kind(after, func() error { return c.provider.CollectLogs(c.Name, o.Logs) })
			if logs, readErr := os.ReadDir(o.Logs); readErr == nil && len(logs) > 0 {
				err = fmt.Errorf("%w; logs of the nodes in %s", err, o.Logs)
			}
		}
		err = errors.Join(err, c.Delete(after))
	}()
	config := o.config(own)
	if o.slow() {
		if err := o.patient(config); err != nil {
			return nil, err
		}
	}
	err = o.Engine.kind(ctx, func() error {
		return c.create(ctx, filepath.Join(dir, "config"),
			cluster.CreateWithV1Alpha4Config(config), cluster.CreateWithNodeImage(o.Image), cluster.CreateWithWaitForReady(o.Slower.Of(readyDeadline)),
			cluster.CreateWithDisplayUsage(false), cluster.CreateWithDisplaySalutation(false), cluster.CreateWithRetain(true))
	})
	if err != nil {
		return nil, err
	}
	all, err := c.waitReady(ctx, o.Slower)
	if err != nil || !own {
		return c, err
	}
	return c, c.routePods(ctx, all)
}

// create has the kind library make the cluster and lists its nodes. kubeconfig is a file for the library to write to.
func (c *Cluster) create(ctx context.Context, kubeconfig string, options ...cluster.CreateOption) (err error) {
	created := make(chan error, 1)
	go func() {
		created <- c.provider.Create(c.Name, append(options, cluster.CreateWithKubeconfigPath(kubeconfig))...)
	}()
	select {
	case err = <-created:
	case <-ctx.Done():
		// The library knows no context: without its nodes it ends soon.
		err = errors.Join(context.Cause(ctx), c.provider.Delete(c.Name, kubeconfig))
		<-created
	}
	if err != nil {
		return fmt.Errorf("create the cluster %s: %w%s%s", c.Name, err, said(err), c.engine.capabilityHint(err))
	}
	// The port that the engine publishes is in the engine's network namespace, which need not be ours.
	internal, err := c.provider.KubeConfig(c.Name, true)
	if err != nil {
		return err
	}
	c.Kubeconfig = []byte(internal)
	if c.nodes, err = c.provider.ListInternalNodes(c.Name); err != nil {
		return err
	}
	for _, n := range c.nodes {
		role, err := n.Role()
		if err != nil {
			return err
		}
		pid, err := c.pid(ctx, n.String())
		if err != nil {
			return err
		}
		if role == constants.WorkerNodeRoleValue {
			c.Workers = append(c.Workers, Node{Name: n.String(), PID: pid})
		} else {
			c.ControlPlane = Node{Name: n.String(), PID: pid}
		}
	}
	return nil
}

// said is what the command of kind that failed said last, kubeadm as a rule, without its account of every step and of its own source.
func said(err error) string {
	failed := exec.RunErrorForError(err)
	if failed == nil {
		return ""
	}
	var lines []string
	for line := range strings.Lines(string(failed.Output)) {
		line = strings.TrimRight(line, "\n")
		if line != "" && !chatter.MatchString(line) {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return ": " + strings.Join(lines[max(0, len(lines)-mostSaid):], "; ")
}

const mostSaid = 6 // lines

// chatter is klog's information and a stack.
var chatter = regexp.MustCompile(`^(I\d{4} |\t|[\w.-]+(/[\w.*()-]+)*\.[\w.*()]+$)`)

func (c *Cluster) pid(ctx context.Context, container string) (int, error) {
	out, err := c.engine.Run(ctx, "inspect", "--format", "{{.State.Pid}}", container)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(out)
}

// makeNetwork makes the clusters' network, if there is none yet.
func (o *Options) makeNetwork(ctx context.Context) error {
	if have, err := o.Engine.Run(ctx, "network", "ls", "-q", "--filter", "name=^"+network+"$"); err != nil || have != "" {
		return err
	}
	args := []string{"network", "create", "--driver", "bridge", "--ipv6"}
	for _, s := range subnets {
		args = append(args, "--subnet", s)
	}
	if o.Engine.host == "" { // its network namespace is ours
		if err := unused(subnets); err != nil {
			return err
		}
	}
	// Containers take the low addresses: those of the topology begin at 11.
	args = append(args, "--ip-range", "192.168.10.0/29", network)
	_, err := o.Engine.Run(ctx, args...)
	return err
}

// unused makes sure that this machine has no route into the networks: the engine would take them over.
func unused(networks []string) error {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("this machine's routes: %w", err)
	}
	for _, text := range networks {
		wanted := netip.MustParsePrefix(text)
		for _, r := range routes {
			if r.Dst == nil {
				continue
			}
			have, err := netip.ParsePrefix(r.Dst.String())
			if err == nil && have.Bits() > 0 && have.Overlaps(wanted) {
				return fmt.Errorf("clusters of the lab need the network %s, and this machine has a route to %s (if it is the lab's own, on another engine, kplab clean removes it there)", wanted, have)
			}
		}
	}
	return nil
}

// config is kind's. Nodes of the lab's own image get their routes from the lab, where others bring kindnet.
func (o *Options) config(own bool) *v1alpha4.Cluster {
	workers := o.Workers
	if workers == 0 {
		workers = 2
	}
	config := &v1alpha4.Cluster{
		Nodes: []v1alpha4.Node{{Role: v1alpha4.ControlPlaneRole}},
		Networking: v1alpha4.Networking{
			IPFamily: v1alpha4.DualStackFamily, DisableDefaultCNI: own, KubeProxyMode: v1alpha4.ProxyMode(o.Mode),
			ServiceSubnet: "10.96.0.0/16,fd00:96::/112",
		},
		KubeadmConfigPatches: []string{kubelet, controlPlane, "kind: InitConfiguration\nskipPhases: [addon/coredns, preflight]\n"},
	}
	if o.slow() {
		patience := o.Slower.Of(kubeadmDeadline)
		config.KubeadmConfigPatches[0] = slowKubelet
		config.KubeadmConfigPatches = append(config.KubeadmConfigPatches, slowControlPlane)
		for _, kind := range []string{"InitConfiguration", "JoinConfiguration"} {
			config.KubeadmConfigPatches = append(config.KubeadmConfigPatches, fmt.Sprintf("kind: %s\ntimeouts:\n  controlPlaneComponentHealthCheck: %[2]s\n  kubeletHealthCheck: %[2]s\n  kubernetesAPICall: %[2]s\n  tlsBootstrap: %[2]s\n  discovery: %[2]s\n", kind, patience))
		}
	}
	for range workers {
		config.Nodes = append(config.Nodes, v1alpha4.Node{Role: v1alpha4.WorkerRole})
	}
	return config
}

// waitReady waits until every node is ready, which kind does for the control plane only.
func (c *Cluster) waitReady(ctx context.Context, slower lab.Deadlines) (map[string]member, error) {
	ctx, cancel := context.WithTimeout(ctx, slower.Of(readyDeadline))
	defer cancel()
	tick := time.NewTicker(slower.Of(500 * time.Millisecond))
	defer tick.Stop()
	for {
		all, err := c.members(ctx)
		if err == nil {
			return all, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("the nodes of %s: %w (%w)", c.Name, err, context.Cause(ctx))
		}
	}
}

// routePods tells each node the way to the pods of the others: the CNI plugins know only their own node.
func (c *Cluster) routePods(ctx context.Context, all map[string]member) error {
	var g errgroup.Group
	for name := range all {
		for peer, n := range all {
			if peer == name {
				continue
			}
			for _, cidr := range n.podCIDRs {
				for _, via := range n.addresses {
					if strings.Contains(cidr, ":") != strings.Contains(via, ":") {
						continue
					}
					g.Go(func() error {
						_, err := c.engine.Run(ctx, "exec", name, "ip", "route", "replace", cidr, "via", via)
						return err
					})
				}
			}
		}
	}
	return g.Wait()
}

// member is what a node says of itself once it is ready: an address and a range of pods in each family.
type member struct{ addresses, podCIDRs []string }

// members lists the nodes. It is an error if one is not ready.
func (c *Cluster) members(ctx context.Context) (map[string]member, error) {
	out, err := c.kubectl(ctx, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name}{"\t"}{.status.conditions[?(@.type=="Ready")].status}{"\t"}{.status.addresses[?(@.type=="InternalIP")].address}{"\t"}{.spec.podCIDRs[*]}{"\n"}{end}`)
	if err != nil {
		return nil, err
	}
	all := map[string]member{}
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 4 {
			return nil, fmt.Errorf("a node said %q", line)
		}
		m := member{strings.Fields(f[2]), strings.Fields(f[3])}
		if f[1] != "True" || len(m.addresses) != 2 || len(m.podCIDRs) != 2 {
			return nil, fmt.Errorf("%s is not ready: Ready=%s, addresses %q, pod CIDRs %q", f[0], f[1], m.addresses, m.podCIDRs)
		}
		all[f[0]] = m
	}
	if len(all) != len(c.nodes) {
		return nil, fmt.Errorf("%d of %d nodes have joined", len(all), len(c.nodes))
	}
	return all, nil
}

func (c *Cluster) controlPlane() string { return c.Name + "-control-plane" }

// kubectl runs kubectl on the control plane.
func (c *Cluster) kubectl(ctx context.Context, args ...string) (string, error) {
	return c.engine.Run(ctx, append([]string{"exec", c.controlPlane(), "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf"}, args...)...)
}

// Administer runs kubectl, as the cluster's administrator, or kubeadm on the control plane. The error of one that failed is a
// *lab.ExitError.
func (c *Cluster) Administer(ctx context.Context, argv ...string) (string, error) {
	args := append([]string{"exec", "--env", "KUBECONFIG=/etc/kubernetes/admin.conf", c.controlPlane()}, argv...)
	stdout, stderr, err := c.engine.output(ctx, nil, args...)
	return stdout, lab.ToolError("control plane", argv, err, stderr)
}

// Said is what the control plane's containers said last, each with how often it was started anew before (N.log).
func (c *Cluster) Said(ctx context.Context) string {
	out, err := c.engine.Run(ctx, "exec", c.controlPlane(), "sh", "-c", `cd /var/log/pods && for f in */*/*.log; do echo "${f#*/}: $(tail -n 2 $f | cut -c 1-300)"; done`)
	if err != nil {
		return err.Error()
	}
	return out
}

// Load gives an archive of images to nodes. An unpacked kube-proxy costs a node seconds of two cores.
func (c *Cluster) Load(ctx context.Context, path string, nodes []string) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, node := range nodes {
		g.Go(func() error {
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = c.engine.feed(ctx, f, "exec", "-i", node, "ctr", "-n", "k8s.io", "images", "import", "-")
			return err
		})
	}
	return g.Wait()
}

// Images lists the images that the nodes have.
func (c *Cluster) Images(ctx context.Context) ([]string, error) {
	out, err := c.engine.Run(ctx, "exec", c.controlPlane(), "ctr", "-n", "k8s.io", "images", "ls", "-q")
	return strings.Fields(out), err
}

// Outside starts a machine on the cluster's network that is not of the cluster, and returns the pid of its first process.
func (c *Cluster) Outside(ctx context.Context, name string, addresses []netip.Addr) (pid int, err error) {
	container := c.Name + "-" + name
	args := []string{"run", "--detach", "--name", container, "--label", Prefix + ".cluster=" + c.Name, "--network", network, "--sysctl", "net.ipv6.conf.all.disable_ipv6=0", "--entrypoint", "sleep"}
	for _, a := range addresses {
		if a.Is6() {
			args = append(args, "--ip6", a.String())
		} else {
			args = append(args, "--ip", a.String())
		}
	}
	if _, err := c.engine.Run(ctx, append(args, c.image, "infinity")...); err != nil {
		return 0, err
	}
	return c.pid(ctx, container)
}

// Delete removes the cluster and the machines outside. It is no error if there is nothing.
func (c *Cluster) Delete(ctx context.Context) error {
	// The library also takes the cluster out of a kubeconfig: not out of the user's.
	dir, err := os.MkdirTemp("", Prefix+"-kubeconfig-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	err = c.engine.kind(ctx, func() error { return c.provider.Delete(c.Name, filepath.Join(dir, "config")) })
	return errors.Join(err, removeOutside(ctx, c.engine, c.Name), removeNetwork(ctx, c.engine))
}

// removeNetwork removes the clusters' network unless another cluster is on it.
func removeNetwork(ctx context.Context, e *Engine) error {
	others, err := Leftovers(ctx, e)
	if err != nil || len(others) > 0 {
		return err
	}
	have, err := e.Run(ctx, "network", "ls", "-q", "--filter", "name=^"+network+"$")
	if err != nil || have == "" {
		return err
	}
	_, err = e.Run(ctx, "network", "rm", network)
	return err
}

func removeOutside(ctx context.Context, e *Engine, cluster string) error {
	out, err := e.Run(ctx, "ps", "-aq", "--filter", "label="+Prefix+".cluster="+cluster)
	if err != nil || out == "" {
		return err
	}
	_, err = e.Run(ctx, append([]string{"rm", "--force"}, strings.Fields(out)...)...)
	return err
}

// Leftovers lists the clusters of the lab that the engine has.
func Leftovers(ctx context.Context, e *Engine) (ours []string, err error) {
	err = e.kind(ctx, func() error {
		all, err := e.provider().List()
		for _, name := range all {
			if strings.HasPrefix(name, Prefix+"-") {
				ours = append(ours, name)
			}
		}
		return err
	})
	return ours, err
}

// DeleteLeftovers removes every cluster of the lab, and its network.
func DeleteLeftovers(ctx context.Context, e *Engine) (removed []string, err error) {
	names, err := Leftovers(ctx, e)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		c := &Cluster{Name: name, engine: e, provider: e.provider()}
		if err := c.Delete(ctx); err != nil {
			return removed, err
		}
		removed = append(removed, name)
	}
	return removed, removeNetwork(ctx, e)
}
