package remote

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"

	"kplab/lab/probe"
)

// pair is both ends, joined by pipes.
func pair(t *testing.T) *Client {
	t.Helper()
	loopback, err := netlink.LinkByName("lo")
	require.NoError(t, err)
	require.NoError(t, netlink.LinkSetUp(loopback))
	farIn, nearOut := io.Pipe()
	nearIn, farOut := io.Pipe()
	answered := make(chan error, 1)
	go func() {
		err := Answer(t.Context(), farIn, farOut)
		farOut.Close()
		answered <- err
	}()
	c := NewClient("pod p", nearOut, nearIn)
	t.Cleanup(func() {
		require.NoError(t, c.Close(context.Background()))
		require.NoError(t, <-answered)
	})
	return c
}

func at(port int) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port))
}

func TestProbesAreThoseOfThisProcess(t *testing.T) {
	c := pair(t)
	port, err := c.Serve(t.Context(), "s1", "tcp", 0)
	require.NoError(t, err)
	again, err := c.Serve(t.Context(), "s1", "tcp", port)
	require.NoError(t, err, "a second time on a port is once, but for port 0")
	assert.Equal(t, port, again)

	o, err := c.Dial(t.Context(), probe.Request{Network: "tcp", Target: at(port), Timeout: 5 * time.Second})
	require.NoError(t, err)
	assert.Equal(t, probe.Reachable, o.Kind)
	assert.Equal(t, "s1", o.Endpoint)
	assert.Equal(t, "127.0.0.1", o.Source.Addr().String())

	o, err = c.Dial(t.Context(), probe.Request{Network: "icmp", Target: at(0), Timeout: 5 * time.Second})
	require.NoError(t, err)
	assert.Equal(t, probe.Reachable, o.Kind)

	require.NoError(t, c.CloseServers(t.Context()))
	o, err = c.Dial(t.Context(), probe.Request{Network: "tcp", Target: at(port), Timeout: 5 * time.Second})
	require.NoError(t, err)
	assert.Equal(t, "refused (rst)", o.String())
	o, err = c.Dial(t.Context(), probe.Request{Network: "udp", Target: at(port), Timeout: 5 * time.Second})
	require.NoError(t, err)
	assert.Equal(t, "refused (icmp port-unreachable)", o.String())
}

func TestManyAtOnce(t *testing.T) {
	c := pair(t)
	port, err := c.Serve(t.Context(), "s1", "udp", 0)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			o, err := c.Dial(t.Context(), probe.Request{Network: "udp", Target: at(port), Timeout: 5 * time.Second})
			assert.NoError(t, err)
			assert.Equal(t, probe.Reachable, o.Kind)
		})
	}
	wg.Wait()
}

func TestWhatTheFarEndCannotTellIsAnError(t *testing.T) {
	c := pair(t)
	_, err := c.Dial(t.Context(), probe.Request{Network: "tcp", Target: at(80)})
	assert.ErrorContains(t, err, "pod p: probe tcp 127.0.0.1:80: Timeout is not set")
	_, err = c.ask(t.Context(), request{})
	assert.ErrorContains(t, err, "asks for nothing")
	_, err = c.Get(t.Context(), 80, "metrics")
	assert.ErrorContains(t, err, "begins with /")
}

func TestAnEndedContextEndsTheProbeThere(t *testing.T) {
	c := pair(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	require.NoError(t, err)
	defer silent.Close()
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.Dial(ctx, probe.Request{Network: "tcp", Target: netip.MustParseAddrPort(silent.Addr().String()), Timeout: time.Hour})
		done <- err
	}()
	conn, err := silent.Accept()
	require.NoError(t, err)
	defer conn.Close()
	cancel(stopped)
	require.ErrorIs(t, <-done, stopped)
	_, err = io.Copy(io.Discard, conn) // ends only when the far end has closed its socket
	if err != nil {
		assert.ErrorContains(t, err, "reset")
	}
}

func TestGet(t *testing.T) {
	c := pair(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/proxyMode" {
			http.NotFound(w, r)
			return
		}
		io.WriteString(w, "nftables")
	}))
	defer s.Close()
	port := s.Listener.Addr().(*net.TCPAddr).Port
	text, err := c.Get(t.Context(), port, "/proxyMode")
	require.NoError(t, err)
	assert.Equal(t, "nftables", text)
	_, err = c.Get(t.Context(), port, "/other")
	assert.ErrorContains(t, err, "404")
}

func TestDescribe(t *testing.T) {
	c := pair(t)
	p, err := c.Describe(t.Context())
	require.NoError(t, err)
	assert.Contains(t, p.Addresses, netip.MustParseAddr("127.0.0.1"))
	assert.Empty(t, p.RawSockets)
}

// A far end that dies, as with its pod, fails what waits for it and what comes after.
func TestAFarEndThatEnds(t *testing.T) {
	nearIn, farOut := io.Pipe()
	farIn, nearOut := io.Pipe()
	c := NewClient("pod p", nearOut, nearIn)
	go func() {
		_, _ = farIn.Read(make([]byte, 1)) // a request has begun to arrive
		farOut.CloseWithError(errors.New("container gone"))
		farIn.CloseWithError(errors.New("container gone"))
	}()
	_, err := c.Describe(t.Context())
	assert.ErrorContains(t, err, "pod p: ")
	assert.ErrorContains(t, err, "container gone")
	_, err = c.Dial(t.Context(), probe.Request{Network: "tcp", Target: at(80), Timeout: time.Second})
	assert.ErrorContains(t, err, "container gone")
	assert.NoError(t, c.Close(t.Context()))
}
