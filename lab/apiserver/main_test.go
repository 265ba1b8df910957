package apiserver

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kplab/lab/manifest"
)

// objects reads a manifest.
func objects(t testing.TB, text string) []runtime.Object {
	t.Helper()
	o, err := manifest.Decode("test.yaml", 1, []byte(text))
	require.NoError(t, err)
	return o
}

// apply applies manifests to a server, which must succeed.
func apply(t testing.TB, s *Server, texts ...string) {
	t.Helper()
	for _, text := range texts {
		require.NoError(t, s.Apply(t.Context(), objects(t, text)...))
	}
}

func service(t testing.TB, s *Server, name string) *corev1.Service {
	t.Helper()
	svc, err := s.Service("", name)
	require.NoError(t, err)
	return svc
}

// start serves s on a loopback listener until the test ends and returns its URL.
func start(t testing.TB, s *Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, <-done)
	})
	return "http://" + l.Addr().String()
}

// client returns a clientset for url that asks for contentType as kube-proxy does.
func client(t testing.TB, url, contentType string) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(&rest.Config{
		Host: url, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: contentType, AcceptContentTypes: contentType + ",application/json"},
	})
	require.NoError(t, err)
	return c
}

// deadline is for what must happen soon.
func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}
