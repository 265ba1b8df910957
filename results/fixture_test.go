package results

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kplab/lab"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// golden compares what render writes with testdata/name.
func golden(t *testing.T, name string, render func(io.Writer) error) {
	t.Helper()
	var got bytes.Buffer
	require.NoError(t, render(&got))
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(file, got.Bytes(), 0o666))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "go test ./results -update writes it")
	require.Equal(t, string(want), got.String())
}

var start = time.Date(2026, 11, 30, 1, 53, 1, 0, time.UTC)

func cell(scenario string, mode lab.Mode, kernel lab.Kernel, version string) lab.Cell {
	return lab.Cell{
		Scenario: scenario, Mode: mode, Kernel: kernel, KubeProxy: version,
		Userland: lab.Userland{Name: lab.DefaultUserland}, Substrate: lab.DefaultSubstrate,
	}
}

func result(c lab.Cell, v lab.Verdict, ms int64, checks ...lab.Check) lab.Result {
	r := lab.Result{Cell: c, Verdict: v, DurationMs: ms, Checks: orEmpty(checks), Evidence: []string{}, Repro: c.Repro()}
	if v == lab.Fail {
		judge(&r)
	}
	return r
}

func because(r lab.Result, reason string) lab.Result {
	r.Reason = reason
	return r
}

func leaving(r lab.Result, names ...string) lab.Result {
	for _, n := range names {
		r.Evidence = append(r.Evidence, "cells/"+r.ID()+"/"+n)
	}
	return r
}

func check(step, claim, what, expected, observed string) lab.Check {
	return lab.Check{Claim: claim, Step: step, What: what, Expected: expected, Observed: observed, OK: true}
}

func control(c lab.Check) lab.Check {
	c.Control = true
	return c
}

func deviating(c lab.Check) lab.Check {
	c.OK = false
	return c
}

func contradicting(c lab.Check, really string) lab.Check {
	c.Contradicts = really
	return c
}

var (
	onHost     = lab.Kernel{Name: "host", Release: "6.18.5", Accelerator: "host"}
	onDebian11 = lab.Kernel{Name: "debian-11", Release: "5.10.0-33-cloud-amd64", Accelerator: "tcg"}
	onDebian12 = lab.Kernel{Name: "debian-12", Release: "6.1.0-39-cloud-amd64", Accelerator: "tcg"}
)

var catalogue = []lab.Claim{
	{ID: "N1", Source: "vips", Text: "in nftables mode a NodePort does not answer on a secondary address of the node"},
	{ID: "N5", Source: "seed, vips", Text: "127.0.0.1:nodePort answers in iptables mode and does not in nftables mode"},
	{ID: "N9", Source: "seed", Text: "kube-proxy opens the host firewall for NodePorts"},
	{ID: "C1", Source: "k/k#74839", Text: "before kernel 6.1 an overly delayed segment resets a long-lived connection to a Service IP"},
	{ID: "K1", Source: "vips", Text: "nftables mode needs kernel 5.13"},
	{ID: "I5", Source: "seed", Text: "the least-connection scheduler counts only its own node's connections"},
}

// sample is a run with every verdict, ipvs in VMs and the other modes on the host.
func sample() *Run {
	const secondary = "probe ext tcp n1.secondary:nodeport/web"
	const localhost = "probe n1 tcp localhost:nodeport/web"
	nodeport := func(mode lab.Mode, k lab.Kernel, ms int64, last lab.Check) lab.Result {
		return result(cell("nodeport-secondary-address", mode, k, "1.37.2"), lab.Pass, ms,
			control(check("nodeport-secondary-address.txtar:9", "N1", "probe ext tcp n1:nodeport/web", "reachable", "reachable by s1 from 192.0.2.9")),
			last,
			check("nodeport-secondary-address.txtar:16", "N1", secondary, "reachable", "reachable by s2 from 192.0.2.9"),
		)
	}
	local := func(mode lab.Mode, k lab.Kernel, v lab.Verdict, ms int64, checks ...lab.Check) lab.Result {
		return result(cell("nodeport-localhost", mode, k, "1.37.2"), v, ms, checks...)
	}
	floor := func(mode lab.Mode, k lab.Kernel) lab.Cell { return cell("kernel-floor", mode, k, "1.37.2") }
	run := &Run{
		Schema: Schema, ID: "20261130T015301.000Z", Started: start, Finished: start.Add(83_400 * time.Millisecond), DurationMs: 83_400,
		Host: Host{
			OS: "Debian GNU/Linux 12 (bookworm)", Kernel: "6.18.5", CPU: "Some CPU @ 2.1 GHz", Cores: 2, MemoryBytes: 24 << 30,
			KPLab: "v0.1.0", User: "root",
		},
		Command: []string{"kplab", "run", "--kernel", "auto,debian-11", "nodeport-*"},
		Machines: []Machine{
			{Kernel: "host", Userland: "debian-12", Substrate: "netns", Machine: lab.Machine{
				Release: "6.18.5", Accelerator: "host", CPU: "Some CPU", Cores: 2, Features: map[string]bool{"nf_tables": true, "ip_vs": false},
				Tools: map[string]string{"nft": "1.0.6", "iptables": "1.8.9"}, Unit: 1,
			}},
			{Kernel: "debian-12", Userland: "debian-12", Substrate: "netns", Machine: lab.Machine{
				Release: "6.1.0-39-cloud-amd64", Accelerator: "tcg", CPU: "QEMU TCG CPU", Cores: 2, Features: map[string]bool{"ip_vs": true},
				Tools: map[string]string{"nft": "1.0.6", "ipvsadm": "1.31"}, Unit: 6.5, BootMs: 5200,
			}},
		},
		Cells: []lab.Result{
			nodeport(lab.IPVS, onDebian12, 7400, check("nodeport-secondary-address.txtar:13", "N1", secondary, "reachable", "reachable by s2 from 192.0.2.9")),
			nodeport(lab.IPTables, onHost, 1240, check("nodeport-secondary-address.txtar:13", "N1", secondary, "reachable", "reachable by s1 from 192.0.2.9")),
			nodeport(lab.NFTables, onHost, 980, check("nodeport-secondary-address.txtar:12", "N1", secondary, "refused", "refused")),
			local(lab.IPVS, onDebian12, lab.Pass, 6900,
				contradicting(check("nodeport-localhost.txtar:14", "N5", localhost, "timeout", "timeout"), "127.0.0.1:nodePort times out in ipvs mode")),
			leaving(local(lab.IPTables, onHost, lab.Fail, 2310,
				control(check("nodeport-localhost.txtar:10", "", "probe n1 tcp n1:nodeport/web", "reachable", "reachable by s1 from 10.0.0.1")),
				deviating(check("nodeport-localhost.txtar:15", "N5", localhost, "reachable", "refused")),
				deviating(check("nodeport-localhost.txtar:21", "N9", "metric n1 kubeproxy_iptables_localhost_nodeports_accepted_packets_total", "increases", "0 before,\n0 after"))),
				"n1/addresses.txt", "n1/conntrack.txt", "n1/ipset.txt", "n1/iptables-save.txt", "n1/kube-proxy.log", "n1/metrics.txt", "n1/nft.txt", "n2/kube-proxy.log"),
			leaving(because(local(lab.NFTables, onHost, lab.Error, 1890,
				deviating(control(check("nodeport-localhost.txtar:10", "", "probe n1 tcp n1:nodeport/web", "reachable", "timeout")))),
				"control failed: the primary address does not answer, so nothing is known of the others"),
				"n1/kube-proxy.log"),
			result(floor(lab.IPVS, onDebian12), lab.Pass, 4100, check("kernel-floor.txtar:8", "", "kube-proxy start n1", "runs", "runs")),
			because(result(floor(lab.IPTables, onHost), lab.Skip, 0), "needs a kernel below 5.13"),
			because(result(floor(lab.NFTables, onHost), lab.Skip, 0), "needs a kernel below 5.13"),
			result(floor(lab.NFTables, onDebian11), lab.Pass, 8800, check("kernel-floor.txtar:10", "K1", "kube-proxy start n1", "exits", "exits with status 1")),
			because(result(cell("conntrack-invalid-reset", lab.IPVS, lab.Kernel{Name: "debian-12"}, "1.37.2"), lab.Error, 0), "not started: interrupted"),
			because(result(cell("lc-scheduler-skew", lab.IPVS, lab.Kernel{Name: "debian-12"}, "1.37.2"), lab.Error, 0), "not started: interrupted"),
		},
		Dir: "results/20261130T015301Z",
	}
	run.Claims = Ledger(catalogue, run)
	return run
}
