package usercluster

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"kplab/lab"
	"kplab/lab/probe"
)

const (
	markerTimeout = 500 * time.Millisecond // of one try

	firstMarkerPort int32 = 50000
)

// marker is a Service that exists to be reached: an API server sends changes in their order, so that when the one that was created after
// everything else answers, everything else is programmed. It serves every node until something changes again.
type marker struct {
	name string
	at   []netip.AddrPort // one a family
}

// mark returns the marker for what the env holds now, and makes it if there is none.
func (e *env) mark(ctx context.Context) (*marker, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.marker != nil {
		return e.marker, nil
	}
	if e.stale != nil {
		if err := e.client.CoreV1().Services(e.namespace).Delete(ctx, e.stale.name, metav1.DeleteOptions{}); err != nil {
			return nil, fmt.Errorf("delete the Service that showed the last sync: %w", err)
		}
		e.stale = nil
	}
	number := e.markers.Add(1)
	port := firstMarkerPort + number%10000
	s1 := e.hosts["s1"]
	if _, err := s1.client.Serve(ctx, s1.name, "tcp", int(port)); err != nil {
		return nil, err
	}
	policy := corev1.IPFamilyPolicyPreferDualStack
	svc, err := e.client.CoreV1().Services(e.namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("kplab-synced-%d", number)},
		Spec: corev1.ServiceSpec{
			IPFamilyPolicy: &policy, Selector: map[string]string{"pod": s1.name},
			Ports: []corev1.ServicePort{{Name: "synced", Port: port, TargetPort: intstr.FromInt32(port)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create the Service that shows a sync: %w", err)
	}
	m := &marker{name: svc.Name}
	for _, ip := range svc.Spec.ClusterIPs {
		if a, err := netip.ParseAddr(ip); err == nil {
			m.at = append(m.at, netip.AddrPortFrom(a, uint16(port)))
		}
	}
	e.marker = m
	return m, nil
}

// waitMarker returns when a pod reaches the marker in every family.
func (e *env) waitMarker(ctx context.Context, from *host) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lab.SyncDeadline, fmt.Errorf("not after %s", lab.SyncDeadline))
	defer cancel()
	m, err := e.mark(ctx)
	if err != nil {
		return err
	}
	err = poll(ctx, func() (bool, error) {
		var seen []string
		for _, at := range m.at {
			o, err := from.Dial(ctx, probe.Request{Network: "tcp", Target: at, Timeout: markerTimeout})
			if err != nil {
				return false, err
			}
			if o.Kind != probe.Reachable || o.Endpoint != "s1" {
				seen = append(seen, fmt.Sprintf("%s: %s", at, o))
			}
		}
		return len(seen) == 0, fmt.Errorf("seen from %s: %s", from.name, strings.Join(seen, ", "))
	})
	if err != nil {
		return fmt.Errorf("Service %s, which was created after everything else, is not to be reached from %s: %w", m.name, from.name, err)
	}
	return nil
}

// changed says that the marker does not stand for everything any more.
func (e *env) changed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.marker != nil {
		e.marker, e.stale = nil, e.marker
	}
}

var _ lab.Partial = (*env)(nil)
