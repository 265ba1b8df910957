package probe

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// Host is a namespace with a name.
type Host interface {
	Netns
	Name() string
}

// Servers are the servers of an env, by host, network and port. The zero value is ready.
type Servers struct {
	mu    sync.Mutex
	known map[string]*Server
}

// Serve has a host listen on a port and answer with its name. Listening twice on the same port is once.
func (s *Servers) Serve(h Host, network string, port int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := h.Name() + "/" + network + "/" + strconv.Itoa(port)
	if s.known[key] != nil {
		return nil
	}
	server, err := Serve(h, h.Name(), network, port)
	if err != nil {
		return fmt.Errorf("%s: serve %s %d: %w", h.Name(), network, port, err)
	}
	if s.known == nil {
		s.known = map[string]*Server{}
	}
	s.known[key] = server
	return nil
}

// ServeService has a host listen on the ports that a Service leads to.
func (s *Servers) ServeService(h Host, svc *corev1.Service) error {
	for _, p := range svc.Spec.Ports {
		port := p.TargetPort.IntValue()
		if port == 0 {
			port = int(p.Port)
		}
		network := strings.ToLower(string(p.Protocol))
		if network == "" {
			network = "tcp"
		}
		if err := s.Serve(h, network, port); err != nil {
			return err
		}
	}
	return nil
}

// Close closes them all.
func (s *Servers) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, server := range s.known {
		errs = append(errs, server.Close())
	}
	clear(s.known)
	return errors.Join(errs...)
}
