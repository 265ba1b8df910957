package bench

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"kplab/lab"
	"kplab/lab/apiserver"
)

// The events of the sync benchmark, in the order in which a trial measures them.
const (
	eventFirst   = "first"           // kube-proxy starts in an empty node: from the start of the process
	eventAdd     = "add-service"     // a Service and its endpoints appear
	eventChange  = "change-endpoint" // one endpoint of a Service gives way to another
	eventRemove  = "remove-service"  // a Service and its endpoints go
	eventRestart = "restart"         // kube-proxy starts over what the one before has programmed, and a Service that came meanwhile
)

const (
	// small events are measured this often in each trial, a line each: they are cheap where the first sync was not.
	repeatsOfSmall = 2
	// mostLanding is the number of endpoints up to which a changed one can be told by where connections arrive. A Service that comes and goes
	// has no more; where all the others have, one of those is changed, and no client can see it.
	mostLanding = 16
	quiet       = 50 * time.Millisecond // without a child and without a line of log, kube-proxy is done with an event
	pollQuiet   = 5 * time.Millisecond
)

// Metrics of kube-proxy's pkg/proxy/metrics that count syncs; the latter two are of iptables and nftables mode.
const (
	metricSync    = "kubeproxy_sync_proxy_rules_duration_seconds"
	metricFull    = "kubeproxy_sync_full_proxy_rules_duration_seconds"
	metricPartial = "kubeproxy_sync_partial_proxy_rules_duration_seconds"
)

// reading is what is read before and after an event.
type reading struct {
	usage   usage
	execs   int
	metrics lab.Metrics
}

// before reads what kube-proxy has used and done so far. Metrics come first: to render them costs it CPU.
func (s *site) before(ctx context.Context) (r reading, err error) {
	if r.metrics, err = s.proxy.Metrics(ctx); err != nil {
		return r, err
	}
	pid, _ := s.proxy.Current()
	r.usage, err = usageOf(pid)
	r.execs = s.execs.count()
	return r, err
}

// after reads it again, metrics last.
func (s *site) after(ctx context.Context) (r reading, err error) {
	pid, _ := s.proxy.Current()
	if r.usage, err = usageOf(pid); err != nil {
		return r, err
	}
	r.execs = s.execs.count()
	r.metrics, err = s.proxy.Metrics(ctx)
	return r, err
}

// options are how every kube-proxy of the trial is started.
func (s *site) options(mode lab.Mode) lab.ProxyOptions {
	period := s.trial.MinSyncPeriod.String()
	return lab.ProxyOptions{
		Mode: mode, Version: s.trial.KubeProxy, Within: s.syncTime(mode),
		Set: map[string]string{"iptables.minSyncPeriod": period, "nftables.minSyncPeriod": period},
	}
}

// syncTime bounds one sync on the reference machine: many times what it takes, since it stands against a hang only, and a machine that does
// other work too must not lose an hour's run to it. A kube-proxy that has ended is told at once.
func (s *site) syncTime(mode lab.Mode) time.Duration {
	const patience = 20
	return 2*time.Minute + patience*time.Duration(fullSync(mode, s.trial.Services, s.trial.Endpoints)*float64(time.Second))
}

// within gives an event its deadline.
func (s *site) within(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := s.syncTime(s.trial.Mode)
	if s.trial.To != "" {
		limit += s.syncTime(s.trial.To)
	}
	limit = s.deadlines.Of(limit)
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit.Round(time.Second)))
}

// syncName is the name of an event's measurement.
func (s *site) syncName(event string) string {
	return fmt.Sprintf("Sync/event=%s/services=%d/endpoints=%d/mode=%s", event, s.trial.Services, s.trial.Endpoints, s.trial.Mode)
}

// start starts kube-proxy and measures until the targets answer, one after the other, and until it is synced.
func (s *site) start(ctx context.Context, event string, targets []netip.AddrPort) (lab.Measurement, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	m := lab.Measurement{Name: s.syncName(event), Iters: 1}
	slabBefore, err := slab()
	if err != nil {
		return m, err
	}
	execs := s.execs.count()
	before, _ := s.proxy.Current()
	children := followChildren(func() (int, time.Time) {
		if pid, began := s.proxy.Current(); pid != before {
			return pid, began
		}
		return 0, time.Time{}
	})
	w, err := s.watch(ctx, goal{reach: targets}, s.onNFTables(s.trial.Mode), func() error {
		return s.proxy.Start(ctx, s.options(s.trial.Mode))
	})
	most := children.end()
	if err != nil {
		return m, err
	}
	pid, began := s.proxy.Current()
	after, err := s.after(ctx)
	if err != nil {
		return m, err
	}
	resident, err := peak(pid)
	if err != nil {
		return m, err
	}
	slabAfter, err := slab()
	if err != nil {
		return m, err
	}
	m.Values = append(m.Values, lab.Value{Value: ms(w.when.Sub(began)), Unit: "ms/programmed"})
	m.Values = append(m.Values, syncValues(nil, after.metrics)...)
	m.Values = append(m.Values, usageValues(after.usage, after.execs-execs)...)
	m.Values = append(m.Values, lab.Value{Value: float64(resident), Unit: "peak-bytes"}, lab.Value{Value: float64(most), Unit: "children-peak-bytes"})
	if event == eventFirst {
		m.Values = append(m.Values, lab.Value{Value: float64(slabAfter - slabBefore), Unit: "slab-bytes"})
		m.Values = append(m.Values, s.deliveryValues(began, w.when)...)
	}
	n, err := s.count(ctx, s.trial.Mode)
	if err != nil {
		return m, err
	}
	m.Values = append(m.Values, lab.Value{Value: float64(n.rules), Unit: "rules"}, lab.Value{Value: float64(n.elements), Unit: "elements"})
	if s.trial.Mode == lab.IPVS {
		m.Values = append(m.Values, lab.Value{Value: float64(n.virtual), Unit: "virtual-servers"}, lab.Value{Value: float64(n.real), Unit: "real-servers"})
	}
	return m, s.sound(ctx, s.services)
}

// deliveryValues say what the lab's own API server took of a first sync: the time in which it was sending what existed.
func (s *site) deliveryValues(began, programmed time.Time) []lab.Value {
	d, ok := s.env.(deliverer)
	if !ok {
		return nil
	}
	var sending []apiserver.Delivery
	for _, delivery := range d.Deliveries() {
		if !delivery.Began.Before(began) {
			sending = append(sending, delivery)
		}
	}
	took := union(sending)
	if took == 0 || !programmed.After(began) {
		return nil
	}
	return []lab.Value{
		{Value: ms(took), Unit: "ms/delivered"},
		{Value: round(100 * float64(took) / float64(programmed.Sub(began))), Unit: "delivered-%"},
	}
}

// union is how long at least one of the deliveries was under way.
func union(deliveries []apiserver.Delivery) (total time.Duration) {
	slices.SortFunc(deliveries, func(a, b apiserver.Delivery) int { return a.Began.Compare(b.Began) })
	var end time.Time
	for _, d := range deliveries {
		if d.Began.After(end) {
			end = d.Began
		}
		if d.Ended.After(end) {
			total += d.Ended.Sub(end)
			end = d.Ended
		}
	}
	return total
}

// event measures one change that the API server is told of. Without a goal that a client could see, only kube-proxy's own clock runs.
func (s *site) event(ctx context.Context, event string, g goal, act func() error) (lab.Measurement, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	m := lab.Measurement{Name: s.syncName(event), Iters: 1}
	before, err := s.before(ctx)
	if err != nil {
		return m, err
	}
	if g.visible() {
		var told time.Time
		w, err := s.watch(ctx, g, s.onNFTables(s.trial.Mode), func() error {
			told = time.Now()
			return act()
		})
		if err != nil {
			return m, err
		}
		m.Values = append(m.Values, lab.Value{Value: ms(w.when.Sub(told)), Unit: "ms/programmed"})
	} else if err := act(); err != nil {
		return m, err
	}
	if err := s.settle(ctx); err != nil {
		return m, err
	}
	pid, _ := s.proxy.Current()
	used, err := usageOf(pid) // before the metrics are read over and over
	if err != nil {
		return m, err
	}
	execs := s.execs.count()
	if err := s.proxy.WaitSynced(ctx); err != nil {
		return m, err
	}
	after, err := s.proxy.Metrics(ctx)
	if err != nil {
		return m, err
	}
	m.Values = append(m.Values, syncValues(before.metrics, after)...)
	m.Values = append(m.Values, usageValues(used.minus(before.usage), execs-before.execs)...)
	return m, nil
}

// settle waits until kube-proxy has no child and logs nothing for a moment.
func (s *site) settle(ctx context.Context) error {
	poll := time.NewTicker(pollQuiet)
	defer poll.Stop()
	pid, _ := s.proxy.Current()
	logged, since := len(s.proxy.Log()), time.Now()
	for time.Since(since) < s.deadlines.Of(quiet) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("kube-proxy does not come to rest: %w", context.Cause(ctx))
		case <-poll.C:
		}
		if n := len(s.proxy.Log()); n != logged || len(members(pid)) > 0 {
			logged, since = n, time.Now()
		}
	}
	return nil
}

// smallEvents measures adding, changing and removing one Service, once.
func (s *site) smallEvents(ctx context.Context, keep func(lab.Measurement)) error {
	other := s.services[0]
	added := newService("added", min(s.trial.Endpoints, mostLanding), &s.pool)
	added.object.Spec.ClusterIP = addedIP.String() // known before, so that the watch can look for it
	added.object.Spec.ClusterIPs = []string{addedIP.String()}
	target := netip.AddrPortFrom(addedIP, servicePort)
	m, err := s.event(ctx, eventAdd, goal{reach: []netip.AddrPort{target}}, func() error { return s.apply(ctx, added) })
	if err == nil {
		err = s.sound(ctx, []*service{added, other})
	}
	if err := report(keep, m, err); err != nil {
		return err
	}
	changed, seen := added, goal{landing: target}
	if s.trial.Endpoints > mostLanding {
		changed, seen = other, goal{}
	}
	seen.at = changed.replaceEndpoint(&s.pool)
	m, err = s.event(ctx, eventChange, seen, func() error { return s.apply(ctx, changed) })
	if err == nil {
		err = s.sound(ctx, []*service{added, other})
	}
	if err := report(keep, m, err); err != nil {
		return err
	}
	m, err = s.event(ctx, eventRemove, goal{gone: target}, func() error { return s.remove(ctx, added) })
	if err == nil {
		err = s.sound(ctx, []*service{other})
	}
	return report(keep, m, err)
}

// addedIP is the ClusterIP of the Service that comes and goes: the allocator gives the lowest first, and never comes so far.
var addedIP = netip.MustParseAddr("10.96.255.200")

func (s *site) remove(ctx context.Context, svc *service) error {
	return s.env.Delete(ctx, "Service", svc.object.Namespace, svc.name())
}

// restart measures a kube-proxy that starts over what is there.
func (s *site) restart(ctx context.Context, keep func(lab.Measurement)) error {
	m, err := func() (lab.Measurement, error) {
		m := lab.Measurement{Name: s.syncName(eventRestart)}
		if err := s.proxy.Stop(ctx); err != nil {
			return m, err
		}
		added := newService("added-meanwhile", min(s.trial.Endpoints, mostLanding), &s.pool)
		if err := s.apply(ctx, added); err != nil {
			return m, err
		}
		if err := s.silent(ctx, added); err != nil {
			return m, err
		}
		return s.start(ctx, eventRestart, []netip.AddrPort{added.clusterIP()})
	}()
	return report(keep, m, err)
}

// sound checks that some of the Services serve.
func (s *site) sound(ctx context.Context, services []*service) error {
	for _, svc := range spread(services) {
		if err := s.serves(ctx, svc); err != nil {
			return err
		}
	}
	return nil
}

// spread is up to 16 of the Services, the first and the last among them: in ipvs mode they are programmed one after the other, in an
// order of chance.
func spread(services []*service) []*service {
	const most = 16
	if len(services) <= most {
		return services
	}
	var some []*service
	for i := range most {
		some = append(some, services[i*(len(services)-1)/(most-1)])
	}
	return some
}

// targets are the ClusterIPs of Services.
func targets(services []*service) (all []netip.AddrPort) {
	for _, svc := range services {
		all = append(all, svc.clusterIP())
	}
	return all
}

// report keeps a measurement, or the error in its place, which it returns.
func report(keep func(lab.Measurement), m lab.Measurement, err error) error {
	if err != nil {
		m.Values, m.Samples, m.Error = nil, nil, err.Error()
	}
	keep(m)
	return err
}

// syncValues are kube-proxy's own clock: how many syncs of IPv4 there were between two scrapes, and what they took in all. A nil scrape is
// the start of the process.
func syncValues(before, after lab.Metrics) (values []lab.Value) {
	delta := func(name string) (float64, bool) {
		labels := map[string]string{"ip_family": "IPv4"}
		now, present := after.Sum(name, labels)
		if before != nil {
			then, _ := before.Sum(name, labels)
			now -= then
		}
		return now, present
	}
	for _, m := range []struct{ name, time, count string }{
		{metricSync, "ms/sync", "syncs"}, {metricFull, "ms/full-sync", "full-syncs"}, {metricPartial, "ms/partial-sync", "partial-syncs"},
	} {
		sum, present := delta(m.name + "_sum")
		n, _ := delta(m.name + "_count")
		if present && (n > 0 || m.name == metricSync) {
			values = append(values, lab.Value{Value: round(1000 * sum), Unit: m.time}, lab.Value{Value: n, Unit: m.count})
		}
	}
	return values
}

func usageValues(u usage, execs int) []lab.Value {
	return []lab.Value{
		{Value: ms(u.cpu), Unit: "kube-proxy-cpu-ms"}, {Value: ms(u.children), Unit: "children-cpu-ms"}, {Value: float64(execs), Unit: "execs"},
	}
}

// ms is a duration in milliseconds, to the microsecond.
func ms(d time.Duration) float64 {
	v, err := strconv.ParseFloat(strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 3, 64), 64)
	if err != nil { // of what FormatFloat wrote
		panic(err)
	}
	return v
}
