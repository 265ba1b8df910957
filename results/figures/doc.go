// Package figures reads what `kplab bench` measured and says what it comes to.
//
// A folder of figures holds
//
//	bench.txt    one line a run in Go benchmark format (https://go.dev/design/14313-benchmark-format): names such as
//	             BenchmarkSync/event=first/services=1000/endpoints=2/mode=nftables, any units, and the setting as
//	             configuration lines (kernel, accelerator, cpu, substrate, kube-proxy, nft, iptables)
//	samples.csv  bench, mode, run, index, value, unit: raw samples of one run each
//	gaps.csv     pair, services, run, client, at_ms, outcome: what each client saw while kube-proxy changed its mode
//	bench.json   of it only what was asked for and not measured: leftOut, failures, interrupted
//
// Only bench.txt must be there. Columns are found by their names; columns that are not listed are ignored.
//
// Medians, their confidence intervals and the test of whether two medians differ are those of benchstat
// (golang.org/x/perf/benchmath): nothing is assumed of a distribution.
package figures
