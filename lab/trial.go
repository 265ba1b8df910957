package lab

import (
	"fmt"
	"time"
)

// Trial is one run of benchmarks: one kube-proxy's life in one mode at one size. A benchmark's plan is a list of trials whose modes
// take turns, so that what changes on the machine meanwhile falls on all of them.
type Trial struct {
	// Benches are done in one env, in the order sync, connect, throughput; "churn" and "switch" are trials of their own.
	Benches   []string `json:"benches"`
	Mode      Mode     `json:"mode"`
	To        Mode     `json:"to,omitempty"` // of a switch: the mode that follows Mode
	KubeProxy string   `json:"kubeProxy"`    // "1.37.2", without v
	Services  int      `json:"services"`
	Endpoints int      `json:"endpoints"` // of each Service
	Run       int      `json:"run"`       // from 1; 0 is a warm-up, whose measurements nobody keeps
	Samples   int      `json:"samples"`   // connections for each point of connect
	Rates     []int    `json:"rates,omitempty"`
	// FindRate has churn go on to higher rates, until kube-proxy falls behind.
	FindRate bool `json:"findRate,omitempty"`
	// Duration is how long each rate of churn and each throughput is kept up.
	Duration time.Duration `json:"duration,omitempty"`
	// MinSyncPeriod is kube-proxy's setting of that name, of iptables and nftables mode.
	MinSyncPeriod time.Duration `json:"minSyncPeriod"`
}

// String names the trial in progress lines: "nftables 1.37.2, 1000 Services with 2 endpoints, run 3".
func (t Trial) String() string {
	mode := string(t.Mode)
	if t.To != "" {
		mode += " to " + string(t.To)
	}
	if t.KubeProxy != "" {
		mode += " " + t.KubeProxy
	}
	run := "warm-up"
	if t.Run > 0 {
		run = fmt.Sprintf("run %d", t.Run)
	}
	return fmt.Sprintf("%s, %d Services with %d endpoints, %s", mode, t.Services, t.Endpoints, run)
}

// Measurement is what one measured event came to: a line of the Go benchmark format, and what lies behind it.
type Measurement struct {
	// Name is the benchmark's name as that format has it, without "Benchmark":
	// "Sync/event=first/services=1000/endpoints=2/mode=nftables".
	Name   string  `json:"name"`
	Iters  int     `json:"iters"` // how many operations the values are over
	Values []Value `json:"values"`
	// Samples are the single operations, in their order, all in SampleUnit.
	Samples    []float64 `json:"samples,omitempty"`
	SampleUnit string    `json:"sampleUnit,omitempty"`
	// Attempts are what clients saw over time, of a switch.
	Attempts []Attempt `json:"attempts,omitempty"`
	// Error says why the event has no values: kube-proxy did not sync, or the data plane did not serve in the end.
	Error string `json:"error,omitempty"`
}

// Value is the first value of a unit, 0 if there is none.
func (m Measurement) Value(unit string) float64 {
	for _, v := range m.Values {
		if v.Unit == unit {
			return v.Value
		}
	}
	return 0
}

// Value is a figure and its unit: "ms/sync", "kube-proxy-cpu-ms", "execs".
type Value struct {
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Attempt is one try of one client while a mode is switched.
type Attempt struct {
	Client  string  `json:"client"`  // "clusterip", "nodeport": new connections; "established": an exchange over an old one
	AtMs    float64 `json:"atMs"`    // when it began, from the moment kube-proxy was told to stop
	Outcome string  `json:"outcome"` // "ok", "timeout", "refused", "reset", "unreachable"
}
