package netns

import (
	"fmt"
	"os"
	"strings"
)

// interesting are the sysctls that kube-proxy sets or that decide what it needs (D-facts: ipvs sysctls, route_localnet,
// conntrack); those that a kernel lacks are left out.
var interesting = []string{
	"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding",
	"net.ipv4.conf.all.route_localnet", "net.ipv4.conf.all.arp_ignore", "net.ipv4.conf.all.arp_announce", "net.ipv4.conf.all.rp_filter",
	"net.ipv4.vs.conntrack", "net.ipv4.vs.conn_reuse_mode", "net.ipv4.vs.expire_nodest_conn", "net.ipv4.vs.expire_quiescent_template",
	"net.netfilter.nf_conntrack_max", "net.netfilter.nf_conntrack_tcp_be_liberal",
	"net.netfilter.nf_conntrack_tcp_timeout_established", "net.netfilter.nf_conntrack_udp_timeout",
}

// setSysctl writes a sysctl of the host's network namespace; key is dotted.
func (h *host) setSysctl(key, value string) error {
	return h.Do(func() error {
		if err := os.WriteFile(sysctlPath(key), []byte(value), 0); err != nil {
			return fmt.Errorf("host %s: sysctl %s=%s: %w", h.spec.Name, key, value, err)
		}
		return nil
	})
}

// sysctls lists the interesting ones as sysctl(8) prints them.
func (h *host) sysctls() string {
	var b strings.Builder
	_ = h.Do(func() error {
		for _, key := range interesting {
			if value, err := os.ReadFile(sysctlPath(key)); err == nil {
				fmt.Fprintf(&b, "%s = %s\n", key, strings.TrimSpace(string(value)))
			}
		}
		return nil
	})
	return b.String()
}

func sysctlPath(key string) string { return "/proc/sys/" + strings.ReplaceAll(key, ".", "/") }
