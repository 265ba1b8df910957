package kubeproxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/mod/semver"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"kplab/lab"
	"kplab/lab/apiserver"
	"kplab/lab/kubeproxy"
)

// The tests of this file run real kube-proxies against the kernel that is there. Each re-executes the test binary in new
// user, pid, mount and network namespaces; that process is the node.
//
//	KPLAB_KUBE_PROXY  the path of a kube-proxy, instead of the default version in the user's cache
//	KPLAB_USERLAND    the root folder of the userland that has nft, iptables, ..., instead of the cached debian-12 or else this machine's own
const insideEnv = "KPLAB_TEST_NODE" // set in the re-executed process: the kube-proxy's path

func TestMain(m *testing.M) {
	if os.Getenv(insideEnv) != "" {
		runtime.LockOSThread() // tests run on other threads; this one, which starts kube-proxies, lives as long as the process
		if err := becomeNode(); err != nil {
			fmt.Fprintln(os.Stderr, "node:", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// onNode runs the test again for each kube-proxy, in namespaces of its own, and returns the binary there; elsewhere nil.
func onNode(t *testing.T) *kubeproxy.Binary {
	if path := os.Getenv(insideEnv); path != "" {
		b, err := new(kubeproxy.Source).Obtain(t.Context(), path)
		require.NoError(t, err)
		return &b
	}
	for _, tool := range []string{"nft", "iptables", "ipset", "conntrack"} {
		if !hasTool(tool) {
			t.Skipf("no %s in %q: set KPLAB_USERLAND to a userland that has it", tool, userland())
		}
	}
	binaries := candidates(t)
	if len(binaries) == 0 {
		t.Skip("no kube-proxy: set KPLAB_KUBE_PROXY to one, or fill the cache with `kplab proxies`")
	}
	for _, b := range binaries {
		t.Run(b.Version, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+strings.Split(t.Name(), "/")[0]+"$", "-test.v", "-test.timeout=5m")
			cmd.Env = append(os.Environ(), insideEnv+"="+b.Path)
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
				UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
			}
			out, err := cmd.CombinedOutput()
			if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
				t.Skipf("user namespaces are not allowed here: %v", err)
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
	return nil
}

func userland() string {
	if dir := os.Getenv("KPLAB_USERLAND"); dir != "" {
		return dir
	}
	if cache, err := os.UserCacheDir(); err == nil {
		dir := filepath.Join(cache, "kplab", "userlands", lab.DefaultUserland)
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
	}
	return "/"
}

func hasTool(name string) bool {
	for _, dir := range []string{"usr/sbin", "usr/bin"} {
		if _, err := os.Lstat(filepath.Join(userland(), dir, name)); err == nil {
			return true
		}
	}
	return false
}

func candidates(t *testing.T) []kubeproxy.Binary {
	if path := os.Getenv("KPLAB_KUBE_PROXY"); path != "" {
		b, err := new(kubeproxy.Source).Obtain(t.Context(), path)
		require.NoError(t, err)
		return []kubeproxy.Binary{b}
	}
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	// One version, whatever else the cache holds, so that the tests mean the same everywhere.
	return slices.DeleteFunc(kubeproxy.Cached(filepath.Join(cache, "kplab", "kube-proxy")), func(b kubeproxy.Binary) bool {
		return b.Version != lab.DefaultKubeProxy
	})
}

var nodeAddresses = []string{"192.0.2.1/32", "2001:db8::1/128"}

// becomeNode gives the process what kube-proxy needs of a node: mounts of its own, addresses and a route.
func becomeNode() error {
	root := userland()
	mounts := []struct {
		source, target, typ string
		flags               uintptr
	}{
		{"", "/", "", syscall.MS_REC | syscall.MS_PRIVATE},
		{root, root, "", syscall.MS_BIND | syscall.MS_REC},
		{"proc", filepath.Join(root, "proc"), "proc", 0},
		{"/dev", filepath.Join(root, "dev"), "", syscall.MS_BIND | syscall.MS_REC},
		{"tmpfs", filepath.Join(root, "run"), "tmpfs", 0},
	}
	proxy, err := os.Open(os.Getenv(insideEnv))
	if err != nil {
		return err
	}
	defer proxy.Close()
	for _, m := range mounts {
		if m.source == "/" || m.source == "/dev" && root == "/" {
			continue
		}
		if err := syscall.Mount(m.source, m.target, m.typ, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "run/kplab"), 0o755); err != nil {
		return err
	}
	copied, err := os.OpenFile(filepath.Join(root, "run/kplab/kube-proxy"), os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(copied, proxy); err != nil {
		return err
	}
	if err := copied.Close(); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	for _, a := range nodeAddresses {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(lo, addr); err != nil {
			return err
		}
	}
	// A route, so that packets to a cluster IP get as far as the rules.
	_, cluster, _ := net.ParseCIDR("10.96.0.0/16")
	return netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: cluster, Src: net.ParseIP("192.0.2.1")})
}

// nodeHost is the process itself as a node.
type nodeHost struct{}

func (nodeHost) Name() string { return "n1" }

func (nodeHost) Command(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	return cmd
}

func (nodeHost) Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr.Chroot = userland()
	cmd.Dir = "/"
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked, nor returned: the thread is the parent whose death counts
		started <- cmd.Start()
		select {}
	}()
	return <-started
}

func (nodeHost) WriteFile(name string, data []byte) error {
	return os.WriteFile(filepath.Join(userland(), name), data, 0o644)
}

func (nodeHost) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, address)
}

// cluster is an API server with a node, and its kube-proxy.
type cluster struct {
	api   *apiserver.Server
	proxy *kubeproxy.Process
}

func newCluster(t *testing.T, mode lab.Mode, version string) *cluster {
	c := &cluster{api: apiserver.New(apiserver.Config{})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go c.api.Serve(l) // until Close
	t.Cleanup(func() { c.api.Close() })
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	for _, a := range nodeAddresses {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{
			Type: corev1.NodeInternalIP, Address: netip.MustParsePrefix(a).Addr().String(),
		})
	}
	require.NoError(t, c.api.Apply(t.Context(), node))
	c.proxy = kubeproxy.New(nodeHost{}, kubeproxy.Options{
		Mode: mode, Version: version, Binaries: map[string]string{version: "/run/kplab/kube-proxy"},
		APIServer: "http://" + l.Addr().String(), ClusterCIDR: "10.244.0.0/16,fd00:10:244::/56", API: c.api,
	})
	t.Cleanup(func() {
		assert.NoError(t, c.proxy.Kill(context.Background()))
		if t.Failed() {
			t.Logf("%s", c.proxy.Log())
		}
	})
	return c
}

// serve makes a Service whose endpoint is a listener of the node, as two objects, and returns its cluster IP and port.
func (c *cluster) serve(t *testing.T, name string, endpoint netip.AddrPort) string {
	port := int32(endpoint.Port())
	require.NoError(t, c.api.Apply(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(port)}}},
	}))
	protocol, ready := corev1.ProtocolTCP, true
	require.NoError(t, c.api.Apply(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name + "-4", Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{endpoint.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports:       []discoveryv1.EndpointPort{{Port: &port, Protocol: &protocol}},
	}))
	service, err := c.api.Service("default", name)
	require.NoError(t, err)
	return net.JoinHostPort(service.Spec.ClusterIP, "80")
}

// listen accepts connections on the node's address.
func listen(t *testing.T) netip.AddrPort {
	l, err := net.Listen("tcp", "192.0.2.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// connect tries once: a SYN that is lost is a failure, since TCP repeats it after a second.
func connect(address string) error {
	conn, err := net.DialTimeout("tcp", address, 900*time.Millisecond)
	if err != nil {
		return err
	}
	return conn.Close()
}

func TestNodeLife(t *testing.T) {
	b := onNode(t)
	if b == nil {
		return
	}
	for _, mode := range []lab.Mode{lab.IPTables, lab.NFTables} {
		t.Run(string(mode), func(t *testing.T) {
			ctx := t.Context()
			c := newCluster(t, mode, b.Version)
			endpoint := listen(t)
			first := c.serve(t, "first", endpoint)
			began := time.Now()
			require.NoError(t, c.proxy.Start(ctx, lab.ProxyOptions{}))
			t.Logf("start to synced: %s", time.Since(began))
			require.NoError(t, connect(first), "right after Start")
			require.ErrorContains(t, c.proxy.Start(ctx, lab.ProxyOptions{}), "is running already")

			got, err := c.proxy.Mode(ctx)
			require.NoError(t, err)
			require.Equal(t, string(mode), got)
			running, err := c.proxy.Running()
			require.NoError(t, err)
			require.True(t, running)
			m, err := c.proxy.Metrics(ctx)
			require.NoError(t, err)
			v, present := m.Sum("kubeproxy_sync_proxy_rules_last_timestamp_seconds", map[string]string{"ip_family": "IPv6"})
			require.True(t, present)
			require.Positive(t, v)

			var waits time.Duration
			const rounds = 40
			for i := range rounds {
				name := fmt.Sprintf("s%d", i)
				address := c.serve(t, name, endpoint)
				began := time.Now()
				require.NoError(t, c.proxy.WaitSynced(ctx))
				waits += time.Since(began)
				require.NoError(t, connect(address), "right after WaitSynced, round %d", i)
				if i%2 == 0 {
					require.NoError(t, c.api.Delete(ctx, "Service", "default", name))
				}
			}
			t.Logf("apply to synced, mean: %s", waits/rounds)

			require.NoError(t, c.proxy.Stop(ctx))
			running, err = c.proxy.Running()
			require.NoError(t, err)
			require.False(t, running)
			require.NoError(t, connect(first), "after Stop: what was programmed stays")
			require.ErrorContains(t, c.proxy.WaitSynced(ctx), "is not running")

			require.NoError(t, c.proxy.Start(ctx, lab.ProxyOptions{Set: map[string]string{"conntrack.tcpBeLiberal": "true"}}))
			require.NoError(t, c.proxy.Kill(ctx))
			log, err := c.proxy.Cleanup(ctx, lab.ProxyOptions{})
			require.NoError(t, err, "%s", log)
			require.Error(t, connect(first), "after Cleanup")
			require.Equal(t, 3, strings.Count(c.proxy.Log(), "==== n1: kube-proxy "+b.Version+" "+string(mode)))
			t.Logf("errors logged:\n%s", strings.Join(c.proxy.Errors(), "\n"))
		})
	}
}

// kernelHasIPVS reports whether this kernel, without loading modules, has IP_VS.
func kernelHasIPVS() bool {
	_, err := os.Stat("/proc/net/ip_vs")
	return err == nil
}

// TestNodeExits is about kube-proxies that end when they should run.
func TestNodeExits(t *testing.T) {
	b := onNode(t)
	if b == nil {
		return
	}
	ctx := t.Context()
	exit := func(t *testing.T, err error) *lab.ProxyExit {
		var e *lab.ProxyExit
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "n1", e.Node)
		assert.Equal(t, 1, e.Code)
		t.Logf("exited: %s", e.Last)
		return e
	}
	since137 := semver.Compare("v"+b.Version, "v1.37.0") >= 0

	t.Run("ipvs without IP_VS", func(t *testing.T) {
		if kernelHasIPVS() {
			t.Skip("this kernel has IP_VS")
		}
		c := newCluster(t, lab.IPVS, b.Version)
		began := time.Now()
		e := exit(t, c.proxy.Start(ctx, lab.ProxyOptions{}))
		assert.Less(t, time.Since(began), 15*time.Second, "the exit ends the wait")
		assert.Contains(t, e.Last, "can't use the IPVS proxier: ")
		assert.Contains(t, e.Log, `"command failed"`)
		running, err := c.proxy.Running()
		require.NoError(t, err, "Start has told it")
		assert.False(t, running)
		require.NoError(t, c.proxy.Stop(ctx))
	})
	t.Run("mode behind a gate", func(t *testing.T) {
		c := newCluster(t, lab.IPVS, b.Version)
		e := exit(t, c.proxy.Start(ctx, lab.ProxyOptions{Set: map[string]string{"featureGates.KubeProxyIPVS": "false"}}))
		if since137 {
			assert.Equal(t, `failed validate: KubeProxyConfiguration.Mode.ProxyMode: Invalid value: "ipvs": must be iptables, nftables or blank (blank means the best-available proxy [currently iptables])`, e.Last)
		} else {
			assert.Contains(t, e.Last, "unrecognized feature gate: KubeProxyIPVS")
		}
	})
	t.Run("unknown flag", func(t *testing.T) {
		c := newCluster(t, lab.NFTables, b.Version)
		assert.Contains(t, exit(t, c.proxy.Start(ctx, lab.ProxyOptions{Args: []string{"--nonsense"}})).Last, "unknown flag: --nonsense")
	})
	t.Run("later, by itself", func(t *testing.T) {
		c := newCluster(t, lab.NFTables, b.Version)
		require.NoError(t, c.proxy.Start(ctx, lab.ProxyOptions{}))
		// It ends when its configuration is written to.
		require.NoError(t, nodeHost{}.WriteFile("/run/kplab/kube-proxy-1.yaml", []byte("changed")))
		require.Eventually(t, func() bool { running, _ := c.proxy.Running(); return !running }, 20*time.Second, time.Millisecond)
		_, err := c.proxy.Running()
		e := exit(t, err)
		assert.Contains(t, e.Last, "configuration file was updated")
		_, err = c.proxy.Running()
		exit(t, err)
		_, err = c.proxy.Mode(ctx)
		exit(t, err)
		require.NoError(t, c.proxy.Stop(ctx), "Mode has told it")
	})
	t.Run("killed by somebody else, while waited for", func(t *testing.T) {
		c := newCluster(t, lab.NFTables, b.Version)
		require.NoError(t, c.proxy.Start(ctx, lab.ProxyOptions{}))
		ahead := kubeproxy.New(nodeHost{}, kubeproxy.Options{})
		require.ErrorContains(t, ahead.WaitSynced(ctx), "was not started")
		killProxies(t)
		err := c.proxy.WaitSynced(ctx)
		var e *lab.ProxyExit
		require.ErrorAs(t, err, &e)
		assert.Equal(t, -1, e.Code)
		assert.Contains(t, e.Last, "signal: killed")
	})
	t.Run("unknown field and version", func(t *testing.T) {
		c := newCluster(t, lab.NFTables, b.Version)
		require.ErrorContains(t, c.proxy.Start(ctx, lab.ProxyOptions{Set: map[string]string{"nodePortAddress": "x"}}), `did you mean "nodePortAddresses"?`)
		require.ErrorContains(t, c.proxy.Start(ctx, lab.ProxyOptions{Version: "1.30.0"}), "not among those given to this run: "+b.Version)
	})
	t.Run("unset mode", func(t *testing.T) {
		c := newCluster(t, lab.NFTables, b.Version)
		require.NoError(t, c.proxy.Start(ctx, lab.ProxyOptions{Set: map[string]string{"mode": ""}}))
		mode, err := c.proxy.Mode(ctx)
		require.NoError(t, err)
		assert.Equal(t, "iptables", mode)
		assert.Equal(t, since137, strings.Contains(c.proxy.Log(), "No kube-proxy mode specified"))
	})
}

// killProxies kills every process of the node but this one.
func killProxies(t *testing.T) {
	require.NoError(t, syscall.Kill(-1, syscall.SIGKILL)) // of this pid namespace; the caller is left out
}

// TestNodeSync is about what WaitSynced says and does when changes and syncs meet.
func TestNodeSync(t *testing.T) {
	b := onNode(t)
	if b == nil {
		return
	}
	ctx := t.Context()

	t.Run("a change that never comes", func(t *testing.T) {
		c := newCluster(t, lab.NFTables, b.Version)
		c.serve(t, "a", listen(t))
		require.NoError(t, c.proxy.Start(ctx, lab.ProxyOptions{}))
		require.NoError(t, c.api.Close())
		c.serve(t, "b", listen(t))
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err := c.proxy.WaitSynced(short)
		require.ErrorContains(t, err, "is not synced after")
		require.ErrorContains(t, err, "it has seen 2 of 4 Service changes, it has seen 1 of 2 EndpointSlice changes")
	})
	t.Run("changes while it starts", func(t *testing.T) {
		c := newCluster(t, lab.NFTables, b.Version)
		endpoint := listen(t)
		for i := range 5 {
			c.serve(t, fmt.Sprintf("before%d", i), endpoint)
		}
		stop, churned := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(churned)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
				service, err := c.api.Service("default", fmt.Sprintf("before%d", i%5))
				if err != nil {
					return
				}
				service = service.DeepCopy()
				service.Annotations = map[string]string{"kplab/round": fmt.Sprint(i)}
				if c.api.Apply(context.Background(), service) != nil {
					return
				}
			}
		}()
		require.NoError(t, c.proxy.Start(ctx, lab.ProxyOptions{}))
		close(stop)
		<-churned
		address := c.serve(t, "after", endpoint)
		require.NoError(t, c.proxy.WaitSynced(ctx))
		require.NoError(t, connect(address))
		address = c.serve(t, "later", endpoint)
		require.NoError(t, c.proxy.WaitSynced(ctx))
		require.NoError(t, connect(address))
	})
	t.Run("a log turned down", func(t *testing.T) {
		c := newCluster(t, lab.NFTables, b.Version)
		endpoint := listen(t)
		require.NoError(t, c.proxy.Start(ctx, lab.ProxyOptions{Set: map[string]string{"logging.verbosity": "0"}}))
		for i := range 5 {
			address := c.serve(t, fmt.Sprint("s", i), endpoint)
			require.NoError(t, c.proxy.WaitSynced(ctx))
			require.NoError(t, connect(address), "round %d", i)
		}
	})
	t.Run("many changes at once", func(t *testing.T) {
		for _, mode := range []lab.Mode{lab.IPTables, lab.NFTables} {
			c := newCluster(t, mode, b.Version)
			endpoint := listen(t)
			require.NoError(t, c.proxy.Start(ctx, lab.ProxyOptions{}))
			for round := range 5 {
				var addresses []string
				for i := range 10 {
					addresses = append(addresses, c.serve(t, fmt.Sprintf("s%d-%d", round, i), endpoint))
				}
				require.NoError(t, c.proxy.WaitSynced(ctx))
				for _, address := range addresses {
					require.NoError(t, connect(address), "%s, round %d", mode, round)
				}
			}
			require.NoError(t, c.proxy.Kill(ctx))
		}
	})
}
