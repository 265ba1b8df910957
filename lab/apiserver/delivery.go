package apiserver

import (
	"slices"
	"sync"
	"time"
)

// Delivery is the sending of everything that existed to a client which began to watch: what the server itself takes of a
// kube-proxy's first sync.
type Delivery struct {
	Path    string // "/api/v1/services"
	Agent   string // the client's User-Agent
	Began   time.Time
	Ended   time.Time // when the kernel had taken the last byte, so that a client slow to read is in it
	Objects int
	Bytes   int64
}

// deliveriesKept bounds the log: a client that watches again and again would make it grow for ever.
const deliveriesKept = 1000

// deliveryLog keeps the latest deliveries.
type deliveryLog struct {
	mu    sync.Mutex
	known []Delivery
}

func (l *deliveryLog) add(d Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.known) == deliveriesKept {
		l.known = slices.Delete(l.known, 0, 1)
	}
	l.known = append(l.known, d)
}

// Deliveries returns the latest deliveries, in the order of their ends.
func (s *Server) Deliveries() []Delivery {
	s.deliveries.mu.Lock()
	defer s.deliveries.mu.Unlock()
	return slices.Clone(s.deliveries.known)
}
