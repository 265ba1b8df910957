// Package bench measures kube-proxy: how long a change takes from the API to the data plane and what that costs (sync), how long a first
// packet takes (connect), how many connections and packets pass (throughput), how kube-proxy keeps up with endpoints that change (churn),
// and how long no connection is possible when its mode is switched (switch).
//
// [Settings] become [lab.Trial]s, which a machine is given as a job's payload beside cells; a [Runner] does them inside the machine, the
// host's sandbox or a VM alike, and sends [lab.Measurement]s as events; a [Recorder] writes them down. What is measured is node n1 of the
// standard env with the only kube-proxy, client pod c1 and server pod s1, all on one machine: latencies are of the kernel's work, without
// a wire.
//
// How the figures come about:
//
//   - ms/programmed is from right before the API server is told of a change (for first and restart: from the start of the process) until the
//     data plane is as it should be, as a client sees it. In iptables (nf_tables variant) and nftables mode the moment is when the kernel's
//     nf_tables generation changed, read every 0.2 ms, confirmed by connections right after. In ipvs mode it is the beginning of the first
//     connection that succeeded, tried every 0.5 ms, or every hundredth of what has passed.
//   - ms/sync and its like are deltas of kube-proxy's own histograms' sums, of IPv4; syncs, full-syncs and partial-syncs of their counts.
//   - kube-proxy-cpu-ms is the process's CPU clock, to the nanosecond; children-cpu-ms what it has waited for, in the kernel's ticks of 10 ms.
//   - peak-bytes is VmHWM of kube-proxy, children-peak-bytes the most that one of its children had resident, looked at every 20 ms.
//   - slab-bytes is the difference in SUnreclaim of the whole machine: nftables' and iptables' rules are in it, and whatever else changed.
//   - execs counts openings of the tools' files by inotify.
//   - us/connect is connect(2) on a blocking socket: SYN to SYN-ACK. path=floor is the same connection before kube-proxy has run. path=direct
//     is to the endpoint itself while it runs: in iptables mode it is not as fast as floor, since every new connection passes all rules.
//
// The package's own Go benchmarks measure the lab: what a cell costs, and the making of its env.
//
//	go test -run '^$' -bench . -count 10 ./bench | tee new.txt && benchstat new.txt
package bench
