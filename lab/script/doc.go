// Package script reads and runs scenarios.
//
// A scenario is a txtar archive: its comment is a script in the language of rsc.io/script (the engine behind the tests of
// cmd/go), its files are ordinary Kubernetes manifests. A command observes (probe, count, metric, ...), and expect, control or
// must then assert what was observed: expect records a check and goes on, so that one run shows every deviation; control
// does the same for the probe that must come out the other way, and if it does not, the cell is an error, since the lab
// cannot tell; must stops the cell. A line may be guarded by conditions: [mode:nftables], [!kernel:>=6.1].
package script
