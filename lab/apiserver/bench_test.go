package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// many returns n Services with two ports and for each an EndpointSlice with two endpoints.
func many(n int) []runtime.Object {
	all := make([]runtime.Object, 0, 2*n)
	for i := range n {
		name := fmt.Sprintf("svc-%05d", i)
		all = append(all, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "https", Port: 443}}},
		}, &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}, {Name: new("https"), Port: new(int32(8443))}},
			Endpoints: []discoveryv1.Endpoint{
				{Addresses: []string{"10.1.0.1"}, NodeName: new("n1"), Conditions: discoveryv1.EndpointConditions{Ready: new(true)}},
				{Addresses: []string{"10.2.0.1"}, NodeName: new("n2"), Conditions: discoveryv1.EndpointConditions{Ready: new(true)}},
			},
		})
	}
	return all
}

// BenchmarkDeliver measures from the start of kube-proxy's two informers until both have 30,000 objects: the server's and
// client-go's work together.
func BenchmarkDeliver(b *testing.B) {
	const n = 30_000
	s := New(Config{})
	require.NoError(b, s.Apply(b.Context(), many(n)...))
	url := start(b, s)
	for _, contentType := range []string{"application/vnd.kubernetes.protobuf", "application/json"} {
		b.Run(contentType[len("application/"):], func(b *testing.B) {
			for b.Loop() {
				deliver(b, url, contentType, n)
			}
			b.ReportMetric(float64(2*n*b.N)/b.Elapsed().Seconds(), "objects/s")
		})
	}
}

// forgetEncodings makes the server encode each object anew.
func (s *Server) forgetEncodings() {
	s.store.mutex.Lock()
	defer s.store.mutex.Unlock()
	for _, t := range s.store.tables {
		for k, e := range t.objects {
			t.objects[k] = newEntry(e.object, e.version)
		}
	}
}

func deliver(b *testing.B, url, contentType string, n int) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	c := client(b, url, contentType)
	f := informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = "!service.kubernetes.io/service-proxy-name,!service.kubernetes.io/headless"
	}))
	var seen atomic.Int64
	done := make(chan struct{})
	count := cache.ResourceEventHandlerFuncs{AddFunc: func(any) {
		if seen.Add(1) == int64(2*n) {
			close(done)
		}
	}}
	for _, i := range []cache.SharedIndexInformer{f.Core().V1().Services().Informer(), f.Discovery().V1().EndpointSlices().Informer()} {
		_, err := i.AddEventHandler(count)
		require.NoError(b, err)
	}
	f.Start(ctx.Done())
	<-done
	b.StopTimer()
	cancel()
	f.Shutdown()
	b.StartTimer()
}

// BenchmarkSend measures the server alone: a client that only reads what the WatchList streams of 30,000 Services and as
// many EndpointSlices bring, when they have been sent to nobody yet ("first") and when their encodings are kept ("again").
func BenchmarkSend(b *testing.B) {
	const n = 30_000
	s := New(Config{})
	require.NoError(b, s.Apply(b.Context(), many(n)...))
	url := start(b, s)
	for _, accept := range []string{"application/vnd.kubernetes.protobuf", "application/json"} {
		for _, which := range []string{"first", "again"} {
			b.Run(accept[len("application/"):]+"/"+which, func(b *testing.B) {
				var size int64
				for b.Loop() {
					if which == "first" {
						b.StopTimer()
						s.forgetEncodings()
						b.StartTimer()
					}
					size = 0
					for _, path := range []string{"/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices"} {
						size += drain(b, url+path+"?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", accept)
					}
				}
				b.SetBytes(size)
			})
		}
	}
}

// drain reads a stream up to the bookmark that ends its initial events and returns how many bytes that were.
func drain(b *testing.B, url, accept string) int64 {
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
	require.NoError(b, err)
	r.Header.Set("Accept", accept)
	response, err := http.DefaultClient.Do(r)
	require.NoError(b, err)
	defer response.Body.Close()
	var size int64
	buffer := make([]byte, 256<<10)
	end := []byte("k8s.io/initial-events-end")
	var tail []byte
	for {
		k, err := response.Body.Read(buffer)
		require.NoError(b, err)
		size += int64(k)
		tail = append(tail[max(0, len(tail)-len(end)):], buffer[:k]...)
		if bytes.Contains(tail, end) {
			return size
		}
	}
}

// BenchmarkApply measures how fast Services and slices are stored one by one, into a store that grows.
func BenchmarkApply(b *testing.B) {
	const n = 30_000
	all := many(n)
	for b.Loop() {
		s := New(Config{})
		for _, o := range all {
			require.NoError(b, s.Apply(b.Context(), o))
		}
	}
	b.ReportMetric(float64(2*n*b.N)/b.Elapsed().Seconds(), "objects/s")
}
