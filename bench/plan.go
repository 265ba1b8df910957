package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"kplab/lab"
)

// Settings are what to measure.
type Settings struct {
	Benches       []string      `json:"benches"`
	Modes         []lab.Mode    `json:"modes"`
	KubeProxies   []string      `json:"kubeProxies"` // versions
	Services      []int         `json:"services"`
	Endpoints     []int         `json:"endpoints"` // of each Service
	Count         int           `json:"count"`     // runs kept of each trial
	Samples       int           `json:"samples"`   // connections for each point of connect
	Rates         []int         `json:"rates"`     // of churn: endpoint changes a second
	FindRate      bool          `json:"findRate"`  // churn goes on to higher rates, until kube-proxy falls behind
	Duration      time.Duration `json:"durationNs"`
	MinSyncPeriod time.Duration `json:"minSyncPeriodNs"` // of all but churn
	// ChurnPeriod is the minimal sync period of churn: there, how changes are gathered into one sync is what matters.
	ChurnPeriod time.Duration `json:"churnPeriodNs"`
}

// DefaultSettings are those of a plain `kplab bench`.
func DefaultSettings() Settings {
	return Settings{
		Benches: []string{Sync, Connect}, Modes: lab.Modes(), KubeProxies: []string{lab.DefaultKubeProxy},
		Services: []int{100, 1000, 5000}, Endpoints: []int{2}, Count: 6, Samples: 1000,
		Rates: []int{10, 100, 1000}, FindRate: true, Duration: 10 * time.Second, MinSyncPeriod: 10 * time.Millisecond,
		ChurnPeriod: time.Second, // kube-proxy's default
	}
}

// QuickSettings give a shape in about two minutes.
func QuickSettings() Settings {
	s := DefaultSettings()
	s.Services, s.Count, s.Samples, s.Duration, s.Rates, s.FindRate = []int{100, 1000}, 3, 1000, 3*time.Second, []int{10, 100}, false
	return s
}

// mostServices is how many ClusterIPs the env's range has, with room for what events add.
const mostServices = 60_000

// Validate names the first setting that is out of bounds.
func (s Settings) Validate() error {
	for _, b := range s.Benches {
		if !slices.Contains(Known(), b) {
			return fmt.Errorf("unknown benchmark %q%s", b, lab.Suggest(b, Known()))
		}
	}
	for _, n := range s.Services {
		if n < 1 || n > mostServices {
			return fmt.Errorf("%d Services: expected 1 to %d, the range of the ClusterIPs", n, mostServices)
		}
	}
	for _, n := range s.Endpoints {
		if n < 1 || n > 200_000 {
			return fmt.Errorf("%d endpoints for each Service: expected 1 to 200000", n)
		}
		for _, services := range s.Services {
			if services*n > 1_000_000 {
				return fmt.Errorf("%d Services with %d endpoints each: expected a million endpoints at most", services, n)
			}
		}
	}
	for _, r := range s.Rates {
		if r < 1 || r > 100_000 {
			return fmt.Errorf("%d endpoint changes a second: expected 1 to 100000", r)
		}
	}
	switch {
	case len(s.Benches) == 0:
		return fmt.Errorf("nothing to measure: known are %s", strings.Join(Known(), ", "))
	case len(s.Modes) == 0, len(s.Services) == 0, len(s.Endpoints) == 0, len(s.KubeProxies) == 0:
		return errors.New("no mode, no number of Services, no number of endpoints or no kube-proxy is left to measure")
	case s.Count < 1 || s.Count > 1000:
		return fmt.Errorf("each trial %d times: expected 1 to 1000", s.Count)
	case s.Samples < 10 || s.Samples > 100_000:
		return fmt.Errorf("%d connections for each point: expected 10 to 100000", s.Samples)
	case s.MinSyncPeriod < time.Millisecond || s.MinSyncPeriod > time.Minute:
		return fmt.Errorf("a minimal sync period of %s: expected 1ms to 1m", s.MinSyncPeriod)
	case s.Duration < 100*time.Millisecond || s.Duration > 10*time.Minute:
		return fmt.Errorf("a duration of %s: expected 100ms to 10m", s.Duration)
	}
	return nil
}

// Trials lists what a machine runs: sizes from small to large, within a size one run after the other, within a run the modes in turns,
// so that a run that is cut short has whole sizes, and what drifts falls on all modes. It begins with a warm-up of each mode at the
// smallest size, which brings binaries, libraries and kernel modules into memory.
func (s Settings) Trials() []lab.Trial {
	var all []lab.Trial
	sizes, endpoints := slices.Sorted(slices.Values(s.Services)), slices.Sorted(slices.Values(s.Endpoints))
	// Of warm-ups only the life of a kube-proxy matters.
	warm := s
	warm.Samples, warm.Benches = 10, slices.DeleteFunc(slices.Clone(s.Benches), func(b string) bool { return b == Churn || b == Throughput })
	if len(warm.Benches) == 0 {
		warm.Benches = []string{Sync}
	}
	all = append(all, warm.at(min(sizes[0], 100), min(endpoints[0], 2), 0)...)
	for _, n := range sizes {
		for _, m := range endpoints {
			for run := 1; run <= s.Count; run++ {
				all = append(all, s.at(n, m, run)...)
			}
		}
	}
	return all
}

// at lists one run of one size.
func (s Settings) at(services, endpoints, run int) (all []lab.Trial) {
	inOne := slices.DeleteFunc(slices.Clone(s.Benches), func(b string) bool { return b == Switch || b == Churn })
	t := lab.Trial{
		Services: services, Endpoints: endpoints, Run: run,
		Samples: s.Samples, Rates: s.Rates, FindRate: s.FindRate, Duration: s.Duration, MinSyncPeriod: s.MinSyncPeriod,
	}
	for _, t.KubeProxy = range s.KubeProxies {
		for _, t.Mode = range s.Modes {
			t := t
			if t.Benches = inOne; len(inOne) > 0 {
				all = append(all, t)
			}
			if t.Benches, t.MinSyncPeriod = []string{Churn}, s.ChurnPeriod; slices.Contains(s.Benches, Churn) {
				all = append(all, t)
			}
		}
		if !slices.Contains(s.Benches, Switch) {
			continue
		}
		for _, t.Mode = range s.Modes {
			for _, to := range s.Modes {
				t := t
				if t.Benches, t.To = []string{Switch}, to; to != t.Mode {
					all = append(all, t)
				}
			}
		}
	}
	return all
}

// fullSync is about how many seconds kube-proxy 1.37 takes on the reference machine to program everything, with nft 1.0.6 and iptables 1.8.9
// (nf_tables). What is quadratic is not kube-proxy's: iptables-restore's and the kernel's way with many chains; and in nftables mode, for
// Services of several endpoints, the kernel's way with many anonymous maps in one transaction.
func fullSync(mode lab.Mode, services, endpoints int) float64 {
	n, m := float64(services), float64(endpoints)
	switch mode {
	case lab.IPTables:
		chains := n * (1 + m) / 3
		return 0.2 + chains*230e-6 + chains*chains*110e-9 + n*m*m*300e-9
	case lab.NFTables:
		seconds := 0.3 + n*m*60e-6 + n*m*m*100e-9
		if endpoints > 1 {
			seconds += n * n * 150e-9
		}
		return seconds
	default: // ipset is run for each Service
		return 1 + n*4e-3 + n*m*20e-6
	}
}

// smallSync is likewise how long one takes after a single change.
func smallSync(mode lab.Mode, services, endpoints int) float64 {
	switch mode {
	case lab.IPTables:
		return 0.05 + fullSync(mode, services, endpoints)/6
	case lab.NFTables:
		return 0.03 + float64(services)*20e-6
	default:
		return 0.5 + float64(services)*100e-6
	}
}

// Estimate is about how long a trial takes on a machine that is unit times slower than the reference, in one or the other direction by
// a factor of two.
func Estimate(t lab.Trial, unit float64) time.Duration {
	full, small := fullSync(t.Mode, t.Services, t.Endpoints), smallSync(t.Mode, t.Services, t.Endpoints)
	seconds := 1 + full + float64(t.Services*t.Endpoints)*60e-6 // env, objects
	has := func(b string) bool { return slices.Contains(t.Benches, b) }
	if has(Sync) {
		seconds += full + repeatsOfSmall*3*(0.1+small)
	}
	if has(Connect) {
		perRound := 8 * 60e-6
		if t.Mode == lab.IPTables {
			perRound += 5 * float64(t.Services) * 15e-9
		}
		seconds += perRound * float64(t.Samples)
	}
	if has(Throughput) {
		seconds += 4*t.Duration.Seconds() + 2*small
	}
	if has(Churn) {
		rates := len(t.Rates)
		if t.FindRate {
			rates += churnDoublings / 2
		}
		seconds += float64(rates) * (t.Duration.Seconds() + 2*small + t.MinSyncPeriod.Seconds())
	}
	if has(Switch) {
		seconds += fullSync(t.To, t.Services, t.Endpoints) + beforeSwitch.Seconds() + afterSwitch.Seconds()
	}
	return time.Duration(seconds * max(unit, 1) * float64(time.Second)).Round(100 * time.Millisecond)
}
