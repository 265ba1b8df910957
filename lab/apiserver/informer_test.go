package apiserver

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// recorder notes what informers deliver.
type recorder struct {
	mutex sync.Mutex
	seen  []string
	more  chan struct{}
}

func (r *recorder) note(s string) {
	r.mutex.Lock()
	r.seen = append(r.seen, s)
	r.mutex.Unlock()
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// wait returns what was delivered since the last wait once it is n.
func (r *recorder) wait(t *testing.T, ctx context.Context, n int) []string {
	t.Helper()
	for {
		r.mutex.Lock()
		seen := r.seen
		if len(seen) >= n {
			r.seen = nil
			r.mutex.Unlock()
			return seen
		}
		r.mutex.Unlock()
		select {
		case <-r.more:
		case <-ctx.Done():
			require.Failf(t, "informers delivered too little", "want %d, got %v", n, seen)
		}
	}
}

func (r *recorder) handler(kind string) cache.ResourceEventHandler {
	name := func(o any) string {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		return kind + " " + o.(metav1.Object).GetName()
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { r.note("add " + name(o)) },
		UpdateFunc: func(_, o any) { r.note("update " + name(o)) },
		DeleteFunc: func(o any) { r.note("delete " + name(o)) },
	}
}

// kubeProxyInformers starts informers with kube-proxy's selectors (1.36 and later) and waits until they have synced.
func kubeProxyInformers(t *testing.T, ctx context.Context, url, contentType string) *recorder {
	t.Helper()
	r := &recorder{more: make(chan struct{}, 1)}
	c := client(t, url, contentType)
	forServices := informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = "!service.kubernetes.io/service-proxy-name"
		o.FieldSelector = "spec.clusterIP!=None"
	}))
	forSlices := informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = "!service.kubernetes.io/headless"
	}))
	forNode := informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = "metadata.name=n1"
	}))
	all := informers.NewSharedInformerFactory(c, 0)
	for kind, informer := range map[string]cache.SharedIndexInformer{
		"service": forServices.Core().V1().Services().Informer(),
		"slice":   forSlices.Discovery().V1().EndpointSlices().Informer(),
		"node":    forNode.Core().V1().Nodes().Informer(),
		"cidr":    all.Networking().V1().ServiceCIDRs().Informer(),
	} {
		_, err := informer.AddEventHandler(r.handler(kind))
		require.NoError(t, err)
	}
	for _, f := range []informers.SharedInformerFactory{forServices, forSlices, forNode, all} {
		f.Start(ctx.Done())
		for informer, synced := range f.WaitForCacheSync(ctx.Done()) {
			require.True(t, synced, "%v", informer)
		}
		t.Cleanup(f.Shutdown)
	}
	return r
}

const informed = `
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: n1}}
- {apiVersion: v1, kind: Node, metadata: {name: n2}}
- {apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}
- {apiVersion: v1, kind: Service, metadata: {name: none}, spec: {clusterIP: None, selector: {app: web}, ports: [{port: 80}]}}
- apiVersion: v1
  kind: Service
  metadata: {name: foreign, labels: {service.kubernetes.io/service-proxy-name: other}}
  spec: {selector: {app: web}, ports: [{port: 80}]}
`

// TestInformers runs client-go's informers as kube-proxy does, with the WatchList stream and with LIST and WATCH.
func TestInformers(t *testing.T) {
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		for _, watchList := range []bool{true, false} {
			name := map[bool]string{true: "WatchList", false: "List"}[watchList]
			t.Run(contentType+"/"+name, func(t *testing.T) {
				clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, watchList)
				testInformers(t, contentType)
			})
		}
	}
}

func testInformers(t *testing.T, contentType string) {
	s := New(Config{})
	url := start(t, s)
	ctx, cancel := context.WithCancel(deadline(t))
	t.Cleanup(cancel)
	apply(t, s, informed)
	before := s.Changes()
	assert.Equal(t, Changes{Services: 1, EndpointSlices: 1, IPv4EndpointSlices: 1, OtherProxyIPv4EndpointSlices: 1}, before)
	assert.Equal(t, before, s.Existing())

	r := kubeProxyInformers(t, ctx, url, contentType)
	assert.ElementsMatch(t, []string{"add service web", "add slice web-ipv4", "add slice foreign-ipv4", "add node n1", "add cidr kubernetes"}, r.wait(t, ctx, 5))

	// A pod makes the slices of all three Services change.
	apply(t, s, `{apiVersion: v1, kind: Pod, metadata: {name: s1, labels: {app: web}}, status: {podIP: 10.1.0.1, conditions: [{type: Ready, status: "True"}]}}`)
	assert.ElementsMatch(t, []string{"update slice web-ipv4", "update slice foreign-ipv4"}, r.wait(t, ctx, 2))

	// Objects begin and cease to match.
	apply(t, s, `{apiVersion: v1, kind: Service, metadata: {name: foreign}, spec: {selector: {app: web}, ports: [{port: 80}]}}`)
	assert.ElementsMatch(t, []string{"add service foreign", "update slice foreign-ipv4"}, r.wait(t, ctx, 2))
	apply(t, s, `{apiVersion: v1, kind: Service, metadata: {name: web, labels: {service.kubernetes.io/service-proxy-name: x}}, spec: {selector: {app: web}, ports: [{port: 80}]}}`)
	assert.ElementsMatch(t, []string{"delete service web", "update slice web-ipv4"}, r.wait(t, ctx, 2))

	require.NoError(t, s.Delete(ctx, "Service", "", "foreign"))
	assert.ElementsMatch(t, []string{"delete service foreign", "delete slice foreign-ipv4"}, r.wait(t, ctx, 2))

	// An object that changes nothing is no change.
	apply(t, s, `{apiVersion: v1, kind: Node, metadata: {name: n1}}`, `{apiVersion: v1, kind: Node, metadata: {name: n2, labels: {a: b}}}`,
		`{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {a: b}}}`)
	assert.Equal(t, []string{"update node n1"}, r.wait(t, ctx, 1))

	after := s.Changes()
	assert.Equal(t, int64(4), after.Services, "web and foreign came and went, as plain Services")
	assert.Equal(t, Changes{OtherProxyIPv4EndpointSlices: 1}, s.Existing())

	// Plain requests.
	c := client(t, url, contentType)
	svc, err := c.CoreV1().Services("default").Get(ctx, "web", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "10.96.0.10", svc.Spec.ClusterIP)
	slices, err := c.DiscoveryV1().EndpointSlices("").List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web", Limit: 1})
	require.NoError(t, err)
	require.Len(t, slices.Items, 1)
	assert.Equal(t, []string{"10.1.0.1"}, slices.Items[0].Endpoints[0].Addresses)
	assert.Equal(t, corev1.ProtocolTCP, *slices.Items[0].Ports[0].Protocol)
}
