package probe

import (
	"net"
	"net/http"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHTTP(t *testing.T) {
	tp := newTopology(t)
	var l net.Listener
	tp.server.do(t, func() (err error) {
		l, err = net.Listen("tcp", "10.0.2.2:80")
		return err
	})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz":
			w.Write([]byte("ok\n"))
		case "/hangs-up":
			panic(http.ErrAbortHandler)
		default:
			http.Error(w, "no endpoints", http.StatusServiceUnavailable)
		}
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Close()
		assert.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	tp.serve(t, "s1", "tcp", 81)

	request := func(target string) Request {
		return Request{Network: "tcp", Target: netip.MustParseAddrPort(target), Timeout: patient}
	}
	for _, tc := range []struct {
		name, target, path string
		want               Kind
		answer             HTTPAnswer
	}{
		{"ok", "10.0.2.2:80", "/healthz", Reachable, HTTPAnswer{Status: 200, Body: "ok"}},
		{"another status", "10.0.2.2:80", "/", Reachable, HTTPAnswer{Status: 503, Body: "no endpoints"}},
		{"no answer", "10.0.2.2:80", "/hangs-up", Reset, HTTPAnswer{}},
		{"nobody listens", "10.0.2.2:82", "/", Refused, HTTPAnswer{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, answer, err := HTTP(t.Context(), tp.client, request(tc.target), tc.path)
			require.NoError(t, err)
			assert.Equal(t, tc.want, out.Kind, "%s", out)
			assert.Equal(t, tc.answer, answer)
		})
	}
	_, _, err := HTTP(t.Context(), tp.client, request("10.0.2.2:81"), "/")
	assert.Error(t, err, "a server that does not speak HTTP is nothing that this probe can tell of")
	_, _, err = HTTP(t.Context(), tp.client, Request{Network: "udp", Target: netip.MustParseAddrPort("10.0.2.2:80"), Timeout: patient}, "/")
	assert.ErrorContains(t, err, "HTTP needs tcp")
}
