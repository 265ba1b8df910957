// Package apiserver is the part of a Kubernetes API server that kube-proxy 1.33 to 1.37 talks to, in process and over
// plain HTTP: it lists and watches (with bookmarks and as WatchList streams, in JSON and protobuf) Services,
// EndpointSlices, Nodes, Pods, Namespaces and ServiceCIDRs, and takes Events. [Server.Apply] validates, defaults and
// allocates as an API server does, and makes the EndpointSlices of Services with a selector as the EndpointSlice
// controller does. There is no authentication, and clients may write nothing but Events.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Config says how a server allocates and what it keeps. The zero value is usable.
type Config struct {
	// ServiceCIDRs are the ranges of cluster IPs, at most one for each family. The first one's family is the primary,
	// which single-stack Services get. Default 10.96.0.0/16, fd00:10:96::/112.
	ServiceCIDRs []netip.Prefix
	// NodePorts is the range of node ports and health check node ports. Default 30000 to 32767.
	NodePorts PortRange
	// History is how many changes of each resource a watch can go back. A watch that asks for or falls behind more
	// ends with 410 Gone. Default 100000.
	History int
	// Log gets a line for each request. Default none.
	Log *slog.Logger
}

// PortRange is a range of ports, both ends included.
type PortRange struct{ First, Last int32 }

// DefaultServiceCIDRs returns the ranges of cluster IPs of a Config that names none.
func DefaultServiceCIDRs() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")}
}

// Server is an API server. Its methods may be called from any goroutine.
type Server struct {
	store         *store
	log           *slog.Logger
	events        eventLog
	deliveries    deliveryLog
	bookmarkEvery time.Duration // how often an idle watch that allows it gets a bookmark
	handler       http.Handler

	stopped context.Context // done once Close is called
	stop    context.CancelFunc

	mu      sync.Mutex
	closed  bool
	serving []*http.Server
	running sync.WaitGroup // handlers and Serve calls
}

// New returns a server that holds what a new cluster does: the Namespace "default" and the ServiceCIDR "kubernetes".
// It serves nobody until [Server.Serve] is called. The caller closes it.
func New(c Config) *Server {
	if len(c.ServiceCIDRs) == 0 {
		c.ServiceCIDRs = DefaultServiceCIDRs()
	}
	if c.NodePorts == (PortRange{}) {
		c.NodePorts = PortRange{30000, 32767}
	}
	if c.History == 0 {
		c.History = 100_000
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{store: newStore(c), log: c.Log, bookmarkEvery: time.Minute}
	s.stopped, s.stop = context.WithCancel(context.Background())
	s.handler = s.routes()
	return s
}

// Serve answers requests that arrive on l until Close, which makes it return nil, or until l fails. It closes l. A server
// may serve any number of listeners at once.
func (s *Server) Serve(l net.Listener) error {
	h := &http.Server{
		Handler:     http.HandlerFunc(s.serveHTTP),
		BaseContext: func(net.Listener) context.Context { return s.stopped },
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return l.Close()
	}
	s.serving = append(s.serving, h)
	s.running.Add(1)
	s.mu.Unlock()
	defer s.running.Done()

	err := h.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the Kubernetes API on %s: %w", l.Addr(), err)
}

// serveHTTP runs the handler so that Close can wait for it.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		http.Error(w, "the server is closed", http.StatusServiceUnavailable)
		return
	}
	s.running.Add(1)
	s.mu.Unlock()
	defer s.running.Done()
	s.handler.ServeHTTP(w, r)
}

// Close ends every watch and connection and returns when all the server's goroutines are gone. What is stored can still
// be read.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	serving := s.serving
	s.serving = nil
	s.mu.Unlock()
	s.stop()
	var errs []error
	for _, h := range serving {
		errs = append(errs, h.Close())
	}
	s.running.Wait()
	return errors.Join(errs...)
}
