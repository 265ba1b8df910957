package usercluster

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"kplab/lab"
)

// fixture has hosts with addresses and no pods: what can be told without a cluster.
func fixture(t *testing.T, objects ...kruntime.Object) *Fixture {
	t.Helper()
	c, _ := cluster(t, objects...)
	f := &Fixture{
		Cluster: c, namespace: "kplab-abc", rawSockets: true, options: Options{Image: "busybox:1"},
		nodes: map[string]Node{"n1": {Name: "a"}, "n2": {Name: "b"}}, hosts: map[string]*host{}, missing: map[string]string{},
		outside: &outside{owned: []netip.Addr{netip.MustParseAddr("198.51.100.1")}},
	}
	number := 10
	for _, spec := range podSpecs() {
		number++
		at := []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(number)})}
		f.hosts[spec.Name] = &host{name: spec.Name, spec: spec, addresses: map[string][]netip.Addr{"primary": at}, owned: at}
	}
	for _, n := range []string{"n1", "n2"} {
		f.hosts[n].addresses["localhost"] = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}
	}
	return f
}

func TestLacks(t *testing.T) {
	f := fixture(t)
	for _, tt := range []struct {
		from, place string
		family      lab.Family
		want        string
	}{
		{"c1", "svc/web", lab.IPv4, ""},
		{"c1", "svc/web", lab.IPv6, "the cluster's pods have no IPv6"},
		{"c1", "n2", lab.IPv4, ""},
		{"n1", "localhost", lab.IPv4, ""},
		{"n1", "localhost", lab.IPv6, "the cluster's pods have no IPv6"},
		{"ext", "n1", lab.IPv4, ""},
		{"ext", "svc/web", lab.IPv4, "this machine knows no way to ClusterIPs"},
		{"ext", "s1", lab.IPv4, "this machine knows no way to pods"},
		{"c1", "ext", lab.IPv4, "by which address pods reach this machine is not known"},
		{"ext", "n1.secondary", lab.IPv4, "which secondary address n1 has is not known"},
		{"other", "n1", lab.IPv4, "there is no host other"},
		{"c1", "other", lab.IPv4, "there is no host other"},
	} {
		assert.Equal(t, tt.want, f.Lacks(tt.from, tt.place, tt.family), "%v", tt)
	}
	f.missing["n1"], f.missing["ext/4"] = "not admitted", "too far"
	assert.Equal(t, "not admitted", f.Lacks("n1", "svc/web", lab.IPv4))
	assert.Empty(t, f.Lacks("c1", "n1", lab.IPv4), "its address is there all the same")
	assert.Equal(t, "too far", f.Lacks("ext", "n1", lab.IPv4))
	assert.Equal(t, []string{"probes are left out: not admitted", "probes are left out: the cluster's pods have no IPv6", "probes are left out: too far"}, f.lackings())
}

func TestOwner(t *testing.T) {
	f := fixture(t)
	gateway, docker := netip.MustParseAddr("10.244.0.1"), netip.MustParseAddr("172.17.0.1")
	f.hosts["n1"].owned = append(f.hosts["n1"].owned, gateway, docker, netip.MustParseAddr("127.0.0.1"))
	f.hosts["n2"].owned = append(f.hosts["n2"].owned, docker)
	f.disown()
	e := &env{Fixture: f}
	assert.Equal(t, "n1", e.Owner(gateway))
	assert.Equal(t, "c1", e.Owner(f.hosts["c1"].owned[0]))
	assert.Equal(t, "ext", e.Owner(netip.MustParseAddr("::ffff:198.51.100.1")))
	assert.Empty(t, e.Owner(docker), "both nodes have it")
	assert.Empty(t, e.Owner(netip.MustParseAddr("10.244.1.1")))
	f.nodes["n2"] = Node{Name: "b", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}}
	assert.Equal(t, "n2", e.Owner(netip.MustParseAddr("10.244.1.1")), "of its pods' range, and no pod's")
}

// admission refuses pods as a policy would.
func admission(f *Fixture, refuses func(*corev1.Pod) bool) {
	client := f.client.(interface {
		PrependReactor(verb, resource string, reaction clienttesting.ReactionFunc)
	})
	client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, kruntime.Object, error) {
		pod := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
		if refuses(pod) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, pod.Name, errors.New("violates PodSecurity"))
		}
		return false, nil, nil
	})
}

func TestPodsThatAreNotAdmitted(t *testing.T) {
	f := fixture(t)
	admission(f, func(p *corev1.Pod) bool { return p.Spec.HostNetwork })
	require.NoError(t, f.startPods(t.Context()))
	assert.Contains(t, f.missing["n1"], "pods in the nodes' network are not admitted: ")
	assert.Contains(t, f.missing["n2"], "violates PodSecurity")
	assert.Len(t, f.missing, 2)

	f = fixture(t)
	admission(f, func(p *corev1.Pod) bool { return p.Spec.Containers[0].SecurityContext != nil })
	require.NoError(t, f.startPods(t.Context()))
	assert.Empty(t, f.missing)
	assert.False(t, f.rawSockets, "the runtime may give it all the same")

	f = fixture(t)
	admission(f, func(p *corev1.Pod) bool { return p.Name == "c1" })
	assert.ErrorContains(t, f.startPods(t.Context()), "create pod c1: ")
}

func TestPodsHaveNoMoreThanTheyNeed(t *testing.T) {
	f := fixture(t)
	for _, spec := range podSpecs() {
		p := f.pod(spec)
		assert.False(t, *p.Spec.AutomountServiceAccountToken, spec.Name)
		assert.NotNil(t, p.Spec.ActiveDeadlineSeconds, "it ends if the run is killed")
		assert.Equal(t, spec.Name == "n1" || spec.Name == "n2", p.Spec.HostNetwork, spec.Name)
		assert.Equal(t, map[string]string{"n1": "a", "s1": "a", "c1": "a", "n2": "b", "s2": "b", "c2": "b"}[spec.Name], p.Spec.NodeName)
	}
	assert.Equal(t, map[string]string{"app": "server", "pod": "s1"}, f.pod(f.hosts["s1"].spec).Labels)
}

func TestPodState(t *testing.T) {
	waiting := func(reason string) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
			{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "why"}}}}}}
	}
	hopeless, why := podState(waiting("ImagePullBackOff"))
	assert.True(t, hopeless)
	assert.Equal(t, "ImagePullBackOff why", why)
	hopeless, why = podState(waiting("ContainerCreating"))
	assert.False(t, hopeless)
	assert.NotEmpty(t, why)
	hopeless, _ = podState(&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}})
	assert.True(t, hopeless)
	_, why = podState(&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}})
	assert.Empty(t, why)
}

func TestNodePortThatIsTaken(t *testing.T) {
	f := fixture(t)
	client := f.client.(interface {
		PrependReactor(verb, resource string, reaction clienttesting.ReactionFunc)
	})
	client.PrependReactor("create", "services", func(clienttesting.Action) (bool, kruntime.Object, error) {
		return true, nil, &apierrors.StatusError{ErrStatus: apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "web", nil).ErrStatus}
	})
	err := (&env{Fixture: f}).put(t.Context(), &corev1.Service{})
	var absent *lab.AbsentError
	assert.False(t, errors.As(err, &absent), "any other mistake is one")
	client.PrependReactor("create", "services", func(clienttesting.Action) (bool, kruntime.Object, error) {
		status := apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "web", nil)
		status.ErrStatus.Message = `Service "web" is invalid: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated`
		return true, nil, status
	})
	err = (&env{Fixture: f}).put(t.Context(), &corev1.Service{})
	assert.ErrorAs(t, err, &absent)
}

func TestKubeProxyIsTheClusters(t *testing.T) {
	p := &proxy{}
	assert.ErrorIs(t, p.Stop(t.Context()), errNotOurs)
	assert.ErrorIs(t, p.Kill(t.Context()), errNotOurs)
	assert.ErrorIs(t, p.Start(t.Context(), lab.ProxyOptions{Mode: lab.IPVS}), errNotOurs)
	_, err := p.Cleanup(t.Context(), lab.ProxyOptions{})
	assert.ErrorIs(t, err, errNotOurs)
	running, err := p.Running()
	assert.True(t, running)
	assert.NoError(t, err)
}
