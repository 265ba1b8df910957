package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestKubeProxy has a real kube-proxy in nftables mode watch the server and looks at the rules. It runs where
// KPLAB_KUBE_PROXY names the binary, as root of network, mount and pid namespaces of its own whose only interface is lo, up
// and with the address 192.0.2.11, and with nft in the PATH:
//
//	go test -c -o /tmp/apiserver.test ./lab/apiserver
//	unshare -r -n -m --pid --fork --mount-proc sh -c 'ip link set lo up; ip address add 192.0.2.11/32 dev lo;
//	    KPLAB_KUBE_PROXY=/path/to/kube-proxy /tmp/apiserver.test -test.v -test.run TestKubeProxy'
func TestKubeProxy(t *testing.T) {
	binary := kubeProxyBinary(t)
	var requests bytes.Buffer
	s := New(Config{Log: slog.New(slog.NewTextHandler(&requests, nil))})
	url := start(t, s)
	require.NoError(t, s.Apply(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.11"}}},
	}))
	apply(t, s, pod("s1", "{ip: 10.1.0.1}, {ip: 'fd00::1'}", ""),
		svc("web", "type: NodePort, ipFamilyPolicy: RequireDualStack, selector: {app: web}, ports: [{port: 80, targetPort: http}]"),
		svc("none", "clusterIP: None, selector: {app: web}, ports: [{port: 80}]"))
	existing := s.Existing()
	assert.Equal(t, Changes{Services: 1, EndpointSlices: 2, IPv4EndpointSlices: 1, IPv6EndpointSlices: 1}, existing)

	log, _ := startKubeProxy(t, binary, url)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	expect := func(changes Changes) {
		t.Helper()
		poll(t, ctx, log, func() error {
			services, endpoints, err := receivedChanges(ctx)
			// In dual-stack mode, both families count each Service.
			if err == nil && (services != 2*changes.Services || endpoints != changes.EndpointSlices) {
				err = fmt.Errorf("kube-proxy received %d Service and %d EndpointSlice changes, want 2*%d and %d",
					services, endpoints, changes.Services, changes.EndpointSlices)
			}
			return err
		})
	}
	expect(existing)
	rules(t, ctx, log, `10\.96\.0\.10 \. tcp \. 80 `, `10\.1\.0\.1( \. |:)8080`, `tcp \. 30000 `, `fd00:10:96::a \. tcp \. 80 `)

	// A second pod, a second Service without endpoints, and the first goes.
	before := s.Changes()
	apply(t, s, pod("s2", "{ip: 10.1.0.2}", ""), svc("empty", "selector: {app: nothing}, ports: [{port: 81}]"))
	after := s.Changes()
	expect(Changes{
		Services:       existing.Services + after.Services - before.Services,
		EndpointSlices: existing.EndpointSlices + after.EndpointSlices - before.EndpointSlices,
	})
	rules(t, ctx, log, `10\.1\.0\.2( \. |:)8080`, `10\.96\.0\.11 \. tcp \. 81 .*: goto reject-chain`)
	require.NoError(t, s.Delete(ctx, "Service", "", "web"))
	poll(t, ctx, log, func() error {
		if got := nftRules(t, ctx); strings.Contains(got, "10.96.0.10") {
			return fmt.Errorf("still there:\n%s", got)
		}
		return nil
	})
	for _, e := range s.Events() {
		t.Logf("event %s: %s %s", e.Reason, e.Note, e.Regarding.Name)
	}
	require.NoError(t, s.Close())
	t.Logf("requests:\n%s", requests.String())
	assert.NotContains(t, requests.String(), "msg=refused")
	assert.NotEmpty(t, s.Events())
}

// BenchmarkKubeProxy measures, where TestKubeProxy runs, from the first request of a kube-proxy until it has received 30,000
// Services and as many EndpointSlices, while it also programs them.
func BenchmarkKubeProxy(b *testing.B) {
	binary := kubeProxyBinary(b)
	for b.Loop() {
		b.StopTimer()
		first := firstWrite{seen: make(chan struct{})}
		s := New(Config{Log: slog.New(slog.NewTextHandler(&first, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		url := start(b, s)
		require.NoError(b, s.Apply(b.Context(), append(many(30_000), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n1"},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.11"}}},
		})...))
		log, stop := startKubeProxy(b, binary, url)
		<-first.seen
		b.StartTimer()
		poll(b, b.Context(), log, func() error {
			services, endpoints, err := receivedChanges(b.Context())
			if err == nil && (services < 60_000 || endpoints < 30_000) {
				err = errors.New("not all received")
			}
			return err
		})
		b.StopTimer()
		stop()
		require.NoError(b, s.Close())
		b.Log(first.String())
		b.StartTimer()
	}
}

// firstWrite closes seen when something is written for the first time.
type firstWrite struct {
	bytes.Buffer
	once sync.Once
	seen chan struct{}
}

func (w *firstWrite) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.seen) })
	return w.Buffer.Write(p)
}

// kubeProxyBinary returns the binary that the environment names. It skips without one, and fails in a network namespace
// that may be the machine's.
func kubeProxyBinary(t testing.TB) string {
	t.Helper()
	binary := os.Getenv("KPLAB_KUBE_PROXY")
	if binary == "" {
		t.Skip("KPLAB_KUBE_PROXY names no binary")
	}
	interfaces, err := net.Interfaces()
	require.NoError(t, err)
	require.Len(t, interfaces, 1, "this is not a network namespace of the test's own")
	return binary
}

// startKubeProxy runs kube-proxy until stop is called or the test ends, and returns its log.
func startKubeProxy(t testing.TB, binary, url string) (log *os.File, stop func()) {
	t.Helper()
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	kubeconfig := write("kubeconfig", fmt.Sprintf(`
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: c
`, url))
	config := write("config", fmt.Sprintf(`
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: n1
clusterCIDR: 10.1.0.0/16,fd00::/64
clientConnection: {kubeconfig: %s}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s, udpTimeout: 0s, udpStreamTimeout: 0s}
nftables: {minSyncPeriod: 10ms}
`, kubeconfig))
	log, err := os.Create(filepath.Join(folder, "log"))
	require.NoError(t, err)
	command := exec.Command(binary, "--config", config, "-v", "2")
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, command.Start())
	stop = sync.OnceFunc(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		_ = log.Close()
	})
	t.Cleanup(stop)
	return log, stop
}

// poll calls f until it succeeds or ctx ends.
func poll(t testing.TB, ctx context.Context, log *os.File, f func() error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			text, _ := os.ReadFile(log.Name())
			require.NoError(t, err, "kube-proxy's log:\n%s", text)
		}
	}
}

// rules waits until nft's ruleset matches each of wanted.
func rules(t *testing.T, ctx context.Context, log *os.File, wanted ...string) {
	t.Helper()
	poll(t, ctx, log, func() error {
		got := nftRules(t, ctx)
		for _, w := range wanted {
			if !regexp.MustCompile(w).MatchString(got) {
				return fmt.Errorf("%q is not among the rules:\n%s", w, got)
			}
		}
		return nil
	})
}

func nftRules(t *testing.T, ctx context.Context) string {
	t.Helper()
	// Not killed at the deadline, so that the rules are there to be shown.
	ctx = context.WithoutCancel(ctx)
	out, err := exec.CommandContext(ctx, "nft", "list", "ruleset").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// receivedChanges reads from kube-proxy's metrics how many changes it received.
func receivedChanges(ctx context.Context) (services, endpoints int64, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10249/metrics", nil)
	if err != nil {
		return 0, 0, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, 0, err
	}
	defer response.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(response.Body); err != nil {
		return 0, 0, err
	}
	for _, m := range regexp.MustCompile(`(?m)^kubeproxy_sync_proxy_rules_(service|endpoint)_changes_total(?:\{.*\})? (\S+)$`).FindAllStringSubmatch(body.String(), -1) {
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return 0, 0, err
		}
		if m[1] == "service" {
			services += int64(v)
		} else {
			endpoints += int64(v)
		}
	}
	return services, endpoints, nil
}
