// Package evidence collects the state of a node after a cell.
package evidence

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"

	"kplab/lab"
)

// dumps are the tools whose output is a node's state, by the name of the file that keeps it. One that fails (an older
// kernel, a feature that is not there) leaves what it said.
var dumps = map[string][]string{
	"nft.txt":            {"nft", "list", "ruleset"},
	"iptables-save.txt":  {"iptables-save", "-c"},
	"ip6tables-save.txt": {"ip6tables-save", "-c"},
	"ipset.txt":          {"ipset", "save"},
	"ipvsadm.txt":        {"ipvsadm", "-Sn"},
	"addresses.txt":      {"ip", "addr", "show"},
	"routes.txt":         {"ip", "route", "show", "table", "all"},
	"conntrack.txt":      {"conntrack", "-L"},
	"conntrack-S.txt":    {"conntrack", "-S"},
}

// Collect collects, for each node, rulesets, addresses, conntrack table and sysctls, and its kube-proxy's log, errors and metrics:
// content by NODE/NAME.
func Collect(ctx context.Context, nodes []lab.Node) map[string][]byte {
	files := map[string][]byte{}
	var mu sync.Mutex
	add := func(name string, data []byte) {
		mu.Lock()
		defer mu.Unlock()
		files[name] = data
	}
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() { collect(ctx, n, add) })
	}
	wg.Wait()
	return files
}

func collect(ctx context.Context, n lab.Node, add func(name string, data []byte)) {
	for name, argv := range dumps {
		out, err := n.Run(ctx, argv...)
		if err != nil {
			out += fmt.Sprintf("\n# %v\n", err)
		}
		add(n.Name()+"/"+name, []byte(out))
	}
	add(n.Name()+"/kube-proxy.log", []byte(n.Proxy().Log()))
	if m, err := n.Proxy().Metrics(ctx); err == nil {
		add(n.Name()+"/metrics.txt", []byte(m.Text()))
	}
	if lines := n.Proxy().Errors(); len(lines) > 0 {
		add(n.Name()+"/kube-proxy-errors.txt", []byte(strings.Join(lines, "\n")+"\n"))
	}
	add(n.Name()+"/sysctls.txt", []byte(sysctls(n)))
}

// interesting are the sysctls that kube-proxy sets or that decide what it needs (D-facts: ipvs sysctls, route_localnet,
// conntrack); those that a kernel lacks are left out.
var interesting = []string{
	"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding",
	"net.ipv4.conf.all.route_localnet", "net.ipv4.conf.all.arp_ignore", "net.ipv4.conf.all.arp_announce", "net.ipv4.conf.all.rp_filter",
	"net.ipv4.vs.conntrack", "net.ipv4.vs.conn_reuse_mode", "net.ipv4.vs.expire_nodest_conn", "net.ipv4.vs.expire_quiescent_template",
	"net.netfilter.nf_conntrack_max", "net.netfilter.nf_conntrack_tcp_be_liberal",
	"net.netfilter.nf_conntrack_tcp_timeout_established", "net.netfilter.nf_conntrack_tcp_timeout_close_wait",
	"net.netfilter.nf_conntrack_udp_timeout", "net.netfilter.nf_conntrack_udp_timeout_stream",
}

// Sysctls are the interesting ones of a host's network namespace that its kernel has.
func Sysctls(h lab.Host) (map[string]string, error) {
	values := map[string]string{}
	err := h.Do(func() error {
		for _, key := range interesting {
			if value, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(key, ".", "/")); err == nil {
				values[key] = strings.TrimSpace(string(value))
			}
		}
		return nil
	})
	return values, err
}

// sysctls lists the interesting ones as sysctl(8) prints them.
func sysctls(h lab.Host) string {
	var b strings.Builder
	values, _ := Sysctls(h) // a host that cannot be entered has none to show
	for _, key := range interesting {
		if value, ok := values[key]; ok {
			fmt.Fprintf(&b, "%s = %s\n", key, value)
		}
	}
	return b.String()
}
