package lab

import "context"

// Job is what a machine is given: cells of one kernel and one userland, and the files they need, as that machine sees them.
type Job struct {
	Cells       []Cell            `json:"cells"`
	Scenarios   map[string]Source `json:"scenarios"`   // by Cell.Scenario
	KubeProxies map[string]string `json:"kubeProxies"` // version -> path of the binary
	Root        string            `json:"root"`        // root folder of the userland; "/" for the machine's own
	Parallel    int               `json:"parallel"`    // cells at once; 0: as many as keep the machine busy
	// Trials are what a benchmark does instead of cells, in this order and one at a time: what shares the cores is no measurement.
	Trials      []Trial   `json:"trials,omitempty"`
	Accelerator string    `json:"accelerator"` // "host", "kvm" or "tcg"
	Shell       ShellWhen `json:"shell,omitempty"`
	// Cluster says which cluster a machine makes for the cells, nil for none.
	Cluster *ClusterJob `json:"cluster,omitempty"`
	// Sabotage is what is broken on purpose in every cell's env (package sabotage), "" for nothing. A sabotaged cell ends at
	// its first deviation, and its result says in Sabotage what was done.
	Sabotage string `json:"sabotage,omitempty"`
}

// DefaultParallel is how many cells keep a machine of two cores busy. An emulated one takes one more.
const DefaultParallel = 2

// ClusterJob is a cluster for a job's cells.
type ClusterJob struct {
	Image    string `json:"image"`    // of the nodes
	Defaults bool   `json:"defaults"` // keep the kube-proxy settings of the cluster's maker
}

// ShellWhen says after which scripts a cell's env stays up, with a shell in its first node on the terminal, until that ends.
type ShellWhen string

const (
	ShellNever  ShellWhen = ""
	ShellAlways ShellWhen = "always"
	ShellFailed ShellWhen = "failed" // after a fail or an error
)

// Source is a scenario's text and where it was read.
type Source struct {
	File string `json:"file"`
	Text string `json:"text"`
}

// Runner runs a job's cells on one machine and sends their events in order. It returns when the machine is gone.
// An error means that the machine itself failed: cells without an EventEnd then have no result.
type Runner interface {
	Run(ctx context.Context, job Job, emit func(Event)) error
}
