package kindenv

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kplab/lab"
)

// markers counts the markers of this process: each has a port of its own, so that no rule of an older one is taken for it.
var markers atomic.Int32

const firstMarkerPort = 50000

// marker is a Service that exists to be seen in a node's rules. An API server sends the changes of one kind in order, and kube-proxy
// programs all that it has received in one sync: when the marker, which was created after everything else, is in the
// rules, so is everything else. Unlike a connection, the rules show it whatever a scenario's firewall does. A cell has one at a time, from its
// first sync on, so that rules which a scenario counts have one marker in them before a change and after.
type marker struct {
	name string
	port int32
	at   []netip.Addr // its endpoints, one a family
}

// mark creates a marker, a dual-stack Service whose only endpoint is a pod's port on which nothing listens, in the place of the one before.
func (f *Fixture) mark(ctx context.Context) error {
	f.markers.Lock()
	defer f.markers.Unlock()
	if err := f.unmark(ctx); err != nil {
		return err
	}
	n := markers.Add(1)
	m := &marker{name: fmt.Sprintf("kplab-synced-%d", n), port: firstMarkerPort + n%10000}
	f.marker = m
	policy := corev1.IPFamilyPolicyRequireDualStack
	_, err := f.client.CoreV1().Services(markerNamespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: m.name},
		Spec:       corev1.ServiceSpec{IPFamilyPolicy: &policy, Ports: []corev1.ServicePort{{Name: "m", Port: m.port}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the Service that shows a sync: %w", err)
	}
	name, ready := "m", true
	for family, typ := range map[lab.Family]discoveryv1.AddressType{lab.IPv4: discoveryv1.AddressTypeIPv4, lab.IPv6: discoveryv1.AddressTypeIPv6} {
		addr, ok := f.hosts["s1"].Address("primary", family)
		if !ok {
			continue
		}
		m.at = append(m.at, addr)
		_, err := f.client.DiscoveryV1().EndpointSlices(markerNamespace).Create(ctx, &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: m.slice(family), Labels: map[string]string{discoveryv1.LabelServiceName: m.name}},
			AddressType: typ,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{addr.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
			Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &m.port}},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create the EndpointSlice that shows a sync: %w", err)
		}
	}
	return nil
}

func (m *marker) slice(family lab.Family) string { return fmt.Sprintf("%s-%d", m.name, family) }

// unmark deletes the marker. The caller holds the lock.
func (f *Fixture) unmark(ctx context.Context) error {
	if f.marker == nil {
		return nil
	}
	gone := []error{f.client.CoreV1().Services(markerNamespace).Delete(ctx, f.marker.name, metav1.DeleteOptions{})}
	for _, family := range []lab.Family{lab.IPv4, lab.IPv6} {
		gone = append(gone, f.client.DiscoveryV1().EndpointSlices(markerNamespace).Delete(ctx, f.marker.slice(family), metav1.DeleteOptions{}))
	}
	for _, err := range gone {
		if err != nil && !isNotFound(err) {
			return fmt.Errorf("delete the Service that showed the last sync: %w", err)
		}
	}
	f.marker = nil
	return nil
}

// rules is how each mode's rules of a family are listed.
var rules = map[lab.Mode]map[lab.Family][]string{
	lab.IPTables: {lab.IPv4: {"iptables-save", "-t", "nat"}, lab.IPv6: {"ip6tables-save", "-t", "nat"}},
	lab.NFTables: {lab.IPv4: {"nft", "-n", "list", "table", "ip", proxyTable}, lab.IPv6: {"nft", "-n", "list", "table", "ip6", proxyTable}},
	lab.IPVS:     {lab.IPv4: {"ipvsadm", "-Sn"}, lab.IPv6: {"ipvsadm", "-Sn"}},
}

// syncs is how many markers a mode must show, one after the other, until all that was there before is programmed. In ipvs mode a sync makes the
// virtual servers first, then the ipsets, and in the end the rules that masquerade (pkg/proxy/ipvs/proxier.go, syncProxyRules). A marker that is
// created once another is seen is programmed by a later sync, and that begins when the first has ended.
func syncs(mode lab.Mode) int {
	if mode == lab.IPVS {
		return 2
	}
	return 1
}

// awaitMark returns when a node's rules of the mode show the marker in each family; alive ends the wait with its error.
// A marker that has taken the place of the caller's was created even later.
func (f *Fixture) awaitMark(ctx context.Context, n *host, mode lab.Mode, alive func() error) error {
	tick := time.NewTicker(f.options.Slower.Of(pollRules))
	defer tick.Stop()
	look := looker{f: f, node: n}
	missing, ran := "no kube-proxy runs", false
	for i := 0; ; i++ {
		runs, err := n.runs("kube-proxy")
		if err != nil {
			return err
		}
		if runs {
			if missing = look.missing(ctx, mode); missing == "" {
				return nil
			}
		}
		// The API server is asked seldom what a look at the processes mostly answers.
		if ran && !runs || i%rarely == 0 {
			if err := alive(); err != nil {
				return err
			}
		}
		ran = runs
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: the rules of %s mode do not show the Service that was created last: %s (%w)", n.Name(), mode, missing, context.Cause(ctx))
		}
	}
}

const (
	pollRules = 30 * time.Millisecond
	rarely    = 10 // of that many looks one
)

// looker looks at a node's rules again and again.
type looker struct {
	f    *Fixture
	node *host

	looks      int
	generation uint32 // of the ruleset that was looked at last
	last       string // what was missing in it
}

// missing is what of the marker the node's rules do not show, "" where they show all of it. Rules that have not changed since are not listed
// again, but for now and then: what iptables-legacy and ipvsadm write has no generation.
func (l *looker) missing(ctx context.Context, mode lab.Mode) string {
	generation, err := l.node.generation()
	if err != nil {
		return err.Error()
	}
	if l.looks++; l.looks%rarely == 1 || generation != l.generation || mode == lab.IPVS {
		l.generation, l.last = generation, l.f.missing(ctx, l.node, mode)
	}
	return l.last
}

// missing is what of the marker a node's rules do not show, "" where they show all of it.
func (f *Fixture) missing(ctx context.Context, n *host, mode lab.Mode) string {
	f.markers.Lock()
	m := f.marker
	f.markers.Unlock()
	if m == nil {
		return "there is none"
	}
	for _, addr := range m.at {
		family := lab.IPv4
		if addr.Is6() {
			family = lab.IPv6
		}
		text, err := n.Run(ctx, rules[mode][family]...)
		if err != nil {
			return err.Error()
		}
		// 10.244.1.3:50001, [fd00::3]:50001, or as elements of a map: 10.244.1.3 . 50001
		shown := regexp.MustCompile(regexp.QuoteMeta(addr.String()) + `\]?\s*[:.]\s*` + fmt.Sprint(m.port) + `\b`)
		if !shown.MatchString(text) {
			return "no " + netip.AddrPortFrom(addr, uint16(m.port)).String()
		}
	}
	return ""
}
