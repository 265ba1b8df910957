package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"kplab/lab"
)

// churnStep is how often changes are made: at rates above its inverse, several at once.
const churnStep = 10 * time.Millisecond

func (s *site) churnName(rate int) string {
	return fmt.Sprintf("Churn/rate=%d/services=%d/endpoints=%d/mode=%s", rate, s.trial.Services, s.trial.Endpoints, s.trial.Mode)
}

// How churnLimit looks for the rate that is too much.
const (
	churnDoublings = 8   // beyond the last of the trial's rates
	churnAsAsked   = 0.8 // of a rate: who makes fewer changes cannot be said to ask for it
	churnSlower    = 1.5 // growth from which changes take longer and longer
	churnDrain     = 3   // and how many times a sync's distance kube-proxy then takes for the last change
)

// churn changes endpoints of all Services in turns at each rate, and meanwhile that of one more Service, the canary, one change after
// the other, each some time after the last has reached the data plane.
func (s *site) churn(ctx context.Context, keep func(lab.Measurement)) error {
	canary := newService("canary", 1, &s.pool)
	addrs, _ := s.pool.take(1) // s1 answers on every address at every port
	canary.other = addrs[0]
	if err := s.apply(ctx, canary); err != nil {
		return report(keep, lab.Measurement{Name: s.churnName(s.trial.Rates[0])}, err)
	}
	if err := s.proxy.WaitSynced(ctx); err != nil {
		return report(keep, lab.Measurement{Name: s.churnName(s.trial.Rates[0])}, err)
	}
	var last lab.Measurement
	for _, rate := range s.trial.Rates {
		m, err := s.soundChurn(ctx, rate, canary)
		if err := report(keep, m, err); err != nil {
			return err
		}
		last = m
	}
	if !s.trial.FindRate {
		return nil
	}
	m, err := s.churnLimit(ctx, s.trial.Rates[len(s.trial.Rates)-1], last, canary)
	return report(keep, m, err)
}

func (s *site) soundChurn(ctx context.Context, rate int, canary *service) (lab.Measurement, error) {
	m, err := s.churnAt(ctx, rate, canary)
	if err == nil {
		err = s.sound(ctx, append([]*service{canary}, s.services...))
	}
	return m, err
}

// churnLimit doubles the rate, from what last came to, until changes take longer and longer, the lab cannot make as many as it is asked
// for, or the last doubling. The first of its values is the highest rate that kube-proxy kept up with; the second, which is absent if
// there was none, the rate at which it fell behind.
func (s *site) churnLimit(ctx context.Context, rate int, last lab.Measurement, canary *service) (lab.Measurement, error) {
	m := lab.Measurement{Name: fmt.Sprintf("ChurnLimit/services=%d/endpoints=%d/mode=%s", s.trial.Services, s.trial.Endpoints, s.trial.Mode), Iters: 1}
	kept, behind := 0.0, 0.0
	for doubled := 0; ; doubled++ {
		made := last.Value("changes/s")
		if s.fellBehind(last) {
			behind = made
			break
		}
		if kept = max(kept, made); doubled == churnDoublings || made < churnAsAsked*float64(rate) {
			break
		}
		rate *= 2
		var err error
		if last, err = s.soundChurn(ctx, rate, canary); err != nil {
			return m, err
		}
	}
	m.Values = []lab.Value{{Value: kept, Unit: "changes/s-kept-up"}}
	if behind > 0 {
		m.Values = append(m.Values, lab.Value{Value: behind, Unit: "changes/s-behind"})
	}
	return m, nil
}

// fellBehind reports whether changes took longer and longer, and the last one much longer than from one sync to the next.
func (s *site) fellBehind(m lab.Measurement) bool {
	between := ms(s.trial.MinSyncPeriod) + 1000/max(m.Value("syncs/s"), 1e-3)
	return m.Value("growth") > churnSlower && m.Value("ms/drain") > churnDrain*between
}

// change gives a Service's first endpoint the other of two addresses, and returns where connections then arrive.
func (s *site) change(ctx context.Context, svc *service) (netip.AddrPort, error) {
	slice := svc.slices[0].DeepCopy()
	if !svc.other.IsValid() {
		addrs, _ := s.pool.take(1)
		svc.other = addrs[0]
	}
	now := svc.other
	svc.other = netip.MustParseAddr(slice.Endpoints[0].Addresses[0])
	slice.Endpoints[0] = endpoint(now)
	svc.slices[0] = slice
	return netip.AddrPortFrom(now, uint16(*slice.Ports[0].Port)), s.env.Apply(ctx, slices.Clone(svc.objects()[1:2]))
}

func (s *site) churnAt(ctx context.Context, rate int, canary *service) (m lab.Measurement, err error) {
	m = lab.Measurement{Name: s.churnName(rate), SampleUnit: "ms/programmed"}
	before, err := s.before(ctx)
	if err != nil {
		return m, err
	}
	changing, stop := context.WithTimeout(ctx, s.trial.Duration)
	defer stop()
	made := make(chan churned, 1)
	began := time.Now()
	go func() { made <- s.changeAll(changing, rate) }() // ends with changing
	var latencies []float64
	phase := rand.New(rand.NewPCG(2, uint64(s.trial.Run)))
	for err == nil {
		// At a moment of chance between two syncs: right after one, each change would wait for the whole period.
		select {
		case <-changing.Done():
		case <-time.After(time.Duration(phase.Int64N(int64(s.trial.MinSyncPeriod)))):
		}
		if changing.Err() != nil {
			break
		}
		var took time.Duration
		if took, err = s.canary(ctx, canary); err != nil {
			break
		}
		latencies = append(latencies, ms(took))
	}
	stop()
	changes := <-made
	if err = errors.Join(err, changes.err); err != nil {
		return m, err
	}
	after, err := s.after(ctx)
	if err != nil {
		return m, err
	}
	elapsed := time.Since(began).Seconds()
	drain, err := s.canary(ctx, canary)
	if err != nil {
		return m, err
	}
	if err := s.proxy.WaitSynced(ctx); err != nil {
		return m, err
	}
	used := after.usage.minus(before.usage)
	now, _ := after.metrics.Sum(metricSync+"_count", map[string]string{"ip_family": "IPv4"})
	then, _ := before.metrics.Sum(metricSync+"_count", map[string]string{"ip_family": "IPv4"})
	m.Iters, m.Samples = len(latencies), latencies
	m.Values = append(quantiles(latencies, "ms/programmed"),
		lab.Value{Value: round(float64(changes.n) / changes.took.Seconds()), Unit: "changes/s"},
		lab.Value{Value: round((now - then) / elapsed), Unit: "syncs/s"},
		lab.Value{Value: round(100 * used.cpu.Seconds() / elapsed), Unit: "kube-proxy-cpu-%"},
		lab.Value{Value: round(100 * used.children.Seconds() / elapsed), Unit: "children-cpu-%"},
		lab.Value{Value: float64(after.execs - before.execs), Unit: "execs"},
		lab.Value{Value: ms(drain), Unit: "ms/drain"},
		lab.Value{Value: growth(latencies), Unit: "growth"},
	)
	return m, nil
}

// canary changes the canary's endpoint and returns how long it takes until connections arrive there.
func (s *site) canary(ctx context.Context, canary *service) (time.Duration, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	g := goal{landing: canary.clusterIP()}
	g.at = netip.AddrPortFrom(canary.other, uint16(*canary.slices[0].Ports[0].Port))
	var told time.Time
	seen, err := s.watch(ctx, g, s.onNFTables(s.trial.Mode), func() error {
		told = time.Now()
		_, err := s.change(ctx, canary)
		return err
	})
	return seen.when.Sub(told), err
}

// churned is what came of changing endpoints.
type churned struct {
	n    int
	took time.Duration
	err  error
}

// changeAll changes endpoints at a rate until ctx ends.
func (s *site) changeAll(ctx context.Context, rate int) (c churned) {
	began := time.Now()
	every := time.NewTicker(churnStep)
	defer every.Stop()
	defer func() { c.took = time.Since(began) }()
	for {
		select {
		case <-ctx.Done():
			return c
		case <-every.C:
		}
		// As many as are due by now: a slow step is made up for, so that the rate is what was asked if the API server can.
		for due := int(time.Since(began).Seconds() * float64(rate)); c.n < due && ctx.Err() == nil; c.n++ {
			if _, err := s.change(context.WithoutCancel(ctx), s.services[c.n%len(s.services)]); err != nil {
				c.err = err
				return c
			}
		}
	}
}

// growth is how many times longer changes took in the second half than in the first: what stays near 1 is kept up with, and what grows
// with the time that churn lasts is not.
func growth(latencies []float64) float64 {
	half := len(latencies) / 2
	if half == 0 {
		return 1
	}
	first, second := median(latencies[:half]), median(latencies[half:])
	if first == 0 {
		return 1
	}
	return round(second / first)
}
