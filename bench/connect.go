package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"kplab/lab"
)

// point is one thing that connections are made to.
type point struct {
	path, position string // position is "" for a path without a Service
	target         netip.AddrPort
	service        *service // nil likewise
}

func (s *site) connectName(p point) string {
	name := "Connect/path=" + p.path
	if p.position != "" {
		name += "/position=" + p.position
	}
	return name + fmt.Sprintf("/services=%d/mode=%s", s.trial.Services, s.trial.Mode)
}

// positions are looked at in each path: where a Service's rule stands among all.
var positions = []string{"first", "middle", "last"}

// points lists what to connect to. In iptables mode a Service's position is that of its rule in the chain, which kube-proxy writes in a
// new order at each sync; in the other modes, which look Services up, it is that of its name, and should make no difference.
func (s *site) points(ctx context.Context) ([]point, error) {
	byPath := map[string][]*service{"clusterip": s.services, "nodeport": s.services[max(0, len(s.services)-nodePorts):]}
	if s.trial.Mode == lab.IPTables {
		rules, err := s.node.Run(ctx, "iptables-save", "-t", "nat")
		if err != nil {
			return nil, fmt.Errorf("positions of the Services' rules: %w", err)
		}
		for path, in := range map[string]inChain{
			"clusterip": {"KUBE-SERVICES", regexp.MustCompile(`(?m)^-A KUBE-SERVICES .*"default/(\S+):http cluster IP".* -j KUBE-SVC-`)},
			"nodeport":  {"KUBE-NODEPORTS", regexp.MustCompile(`(?m)^-A KUBE-NODEPORTS .*"default/(\S+):http".* -j KUBE-EXT-`)},
		} {
			if byPath[path], err = in.order(rules, byPath[path]); err != nil {
				return nil, err
			}
		}
	}
	all := []point{s.direct("direct")}
	for _, path := range []string{"clusterip", "nodeport"} {
		services := byPath[path]
		for i, position := range positions {
			svc := services[i*(len(services)-1)/(len(positions)-1)]
			p := point{path: path, position: position, service: svc, target: svc.clusterIP()}
			if path == "nodeport" {
				p.target = s.nodePort(svc)
			}
			all = append(all, p)
		}
	}
	return all, nil
}

func keys(m map[netip.AddrPort]bool) (all []netip.AddrPort) {
	for k := range m {
		all = append(all, k)
	}
	return all
}

// inChain finds Services' rules in a chain.
type inChain struct {
	chain string
	rule  *regexp.Regexp
}

// order sorts Services by where their rules stand. Each must have one.
func (c inChain) order(rules string, services []*service) ([]*service, error) {
	byName := map[string]*service{}
	for _, svc := range services {
		byName[svc.name()] = svc
	}
	var ordered []*service
	for _, m := range c.rule.FindAllStringSubmatch(rules, -1) {
		if svc := byName[m[1]]; svc != nil {
			ordered = append(ordered, svc)
			delete(byName, m[1])
		}
	}
	if len(byName) > 0 {
		return nil, fmt.Errorf("%d of %d Services have no rule in %s as %s matches them", len(byName), len(services), c.chain, c.rule)
	}
	return ordered, nil
}

const (
	warmUpRounds  = 50  // of each point, thrown away
	drainEvery    = 256 // rounds, so that no queue of the sink runs full
	connectMost   = 2 * time.Second
	hundredthOnly = 100
)

// connect measures how long a connection takes to be established, SYN to SYN-ACK as the client sees it, to each point in turns: what
// disturbs the machine disturbs all alike.
func (s *site) connect(ctx context.Context, keep func(lab.Measurement)) error {
	points, err := s.points(ctx)
	if err != nil {
		return report(keep, lab.Measurement{Name: s.connectName(point{path: "clusterip", position: "first"})}, err)
	}
	for _, p := range points {
		if p.service == nil {
			continue
		}
		if err := s.serves(ctx, p.service); err != nil {
			return report(keep, lab.Measurement{Name: s.connectName(p)}, err)
		}
	}
	return s.sample(ctx, points, keep)
}

// floor measures the same connection before kube-proxy has run: no rule, no connection tracking. It is not the direct path later on, since
// in iptables mode every new connection passes the rules of all Services, to a Service or not.
func (s *site) floor(ctx context.Context, keep func(lab.Measurement)) error {
	return s.sample(ctx, []point{s.direct("floor")}, keep)
}

// direct is an endpoint's own address.
func (s *site) direct(path string) point {
	return point{path: path, target: slices.MinFunc(keys(s.services[0].endpoints()), netip.AddrPort.Compare)}
}

// sample connects to points and keeps what each came to.
func (s *site) sample(ctx context.Context, points []point, keep func(lab.Measurement)) error {
	samples := make([][]float64, len(points))
	for i := range samples {
		samples[i] = make([]float64, 0, s.trial.Samples)
	}
	// A collection of the lab's own garbage would be in the samples.
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	err := s.client.Do(func() error {
		defer pin()()
		defer undisturbed()()
		// In a new order each time: what comes after another connection finds warmer caches.
		order := rand.New(rand.NewPCG(1, uint64(s.trial.Run)))
		for round := -warmUpRounds; round < s.trial.Samples; round++ {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			runtime.Gosched() // here, so that the scheduler does not ask for it within a connection
			if _, err := timeConnect(points[0].target); err != nil {
				return fmt.Errorf("connection before round %d to %s: %w", round, points[0].target, err)
			}
			for _, i := range order.Perm(len(points)) {
				took, err := timeConnect(points[i].target)
				if err != nil {
					return fmt.Errorf("connection %d to %s: %w", round, points[i].target, err)
				}
				if round >= 0 {
					samples[i] = append(samples[i], took)
				}
			}
			if round%(drainEvery/len(points)) == 0 {
				s.sink.drain()
			}
		}
		s.sink.drain()
		return nil
	})
	if err != nil {
		return report(keep, lab.Measurement{Name: s.connectName(points[len(points)-1])}, err)
	}
	for i, p := range points {
		keep(lab.Measurement{
			Name: s.connectName(p), Iters: len(samples[i]), Samples: samples[i], SampleUnit: "us/connect",
			Values: quantiles(samples[i], "us/connect"),
		})
	}
	return nil
}

// timeConnect connects, blocking, and returns how long that took in microseconds. The raw system call leaves the Go scheduler out: to
// win a processor back afterwards would be in the time. Most of it happens within the call: a packet passes virtual links and the rules
// of nodes on the processor that sends it.
func timeConnect(target netip.AddrPort) (us float64, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	timeout := unix.NsecToTimeval(connectMost.Nanoseconds())
	if err := errors.Join(unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &closeWithReset),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout)); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	began := time.Now()
	errno := connectRaw(fd, target)
	took := time.Since(began)
	if errno != 0 {
		return 0, os.NewSyscallError("connect", errno)
	}
	return float64(took.Nanoseconds()/10) / hundredthOnly, nil
}

// undisturbed keeps the signal by which the Go runtime preempts from the calling thread until the returned function is called: it would
// interrupt connect.
func undisturbed() (release func()) {
	var preempt, before unix.Sigset_t
	preempt.Val[0] = 1 << (unix.SIGURG - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &preempt, &before); err != nil {
		return func() {}
	}
	return func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }
}

// pin keeps the calling thread on the last of its processors until the returned function is called. Where that is not allowed it does
// nothing.
func pin() (release func()) {
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return func() {}
	}
	for cpu := runtime.NumCPU() * 64; cpu >= 0; cpu-- {
		if before.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if one.Count() == 0 || unix.SchedSetaffinity(0, &one) != nil {
		return func() {}
	}
	return func() { _ = unix.SchedSetaffinity(0, &before) }
}

// quantiles are the 1st, 50th, 90th and 99th percentile of samples, which are in a unit, and their mean.
func quantiles(samples []float64, unit string) (values []lab.Value) {
	if len(samples) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(samples))
	for _, q := range []struct {
		name string
		of   float64
	}{{"p01", 0.01}, {"p50", 0.50}, {"p90", 0.90}, {"p99", 0.99}} {
		at := q.of * float64(len(sorted)-1)
		i := int(at)
		v := sorted[i]
		if i+1 < len(sorted) {
			v += (at - float64(i)) * (sorted[i+1] - v)
		}
		values = append(values, lab.Value{Value: round(v), Unit: unit + "-" + q.name})
	}
	sum := 0.0
	for _, v := range samples {
		sum += v
	}
	return append(values, lab.Value{Value: round(sum / float64(len(samples))), Unit: unit + "-mean"})
}

// round drops what is below a thousandth.
func round(v float64) float64 { return math.Round(v*1000) / 1000 }
