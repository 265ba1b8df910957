package kubeproxy

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

const (
	refusedMode = `I1130 02:28:37.917766      13 feature_gate.go:477] "Updated" featureGates={"KubeProxyIPVS":false}
E1130 02:28:37.918001      13 run.go:72] "command failed" err="failed validate: KubeProxyConfiguration.Mode.ProxyMode: Invalid value: \"ipvs\": must be iptables, nftables or blank (blank means the best-available proxy [currently iptables])"
`
	noIPVS = `I1130 02:28:38.194032      13 server.go:228] "Successfully retrieved NodeIPs" NodeIPs=["192.0.2.1","2001:db8::1"]
E1130 02:28:38.200000      13 server.go:145] "Error running ProxyServer" err="can't use the IPVS proxier: ipvs not supported by the kernel"
E1130 02:28:38.200010      13 run.go:72] "command failed" err="can't use the IPVS proxier: ipvs not supported by the kernel"
`
	severalLines = `E1130 02:28:38.200000      13 proxier.go:1866] "nftables sync failed" err=<
	/dev/stdin:4:1-5: Error: No such file or directory
	add rule ip kube-proxy x
 > ipFamily="IPv4" attempts=2
I1130 02:28:38.200000      13 proxier.go:1210] "Sync failed" ipFamily="IPv4" retryingTime="30s"
`
	goPanic = `E1130 02:28:38.200000      13 server.go:256] "Kube-proxy configuration may be incomplete or incorrect" err="x"
panic: runtime error: invalid memory address or nil pointer dereference
[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x1]

goroutine 1 [running]:
main.main()
`
	deprecated = `E1130 02:28:38.200000      13 server_linux.go:192] "The ipvs proxier has been deprecated and will be disabled by default in Kubernetes 1.40 and removed in Kubernetes 1.43. Migrate to the 'nftables' proxier instead."
`
)

func TestExitReason(t *testing.T) {
	for _, tt := range []struct{ what, log, want string }{
		{"the command's error", refusedMode, `failed validate: KubeProxyConfiguration.Mode.ProxyMode: Invalid value: "ipvs": must be iptables, nftables or blank (blank means the best-available proxy [currently iptables])`},
		{"the command's error, after others", noIPVS, "can't use the IPVS proxier: ipvs not supported by the kernel"},
		{"kernel too old", `E1130 02:28:38.200010      13 run.go:72] "command failed" err="unable to create proxier: unable to create ipv4 proxier: kube-proxy in nftables mode requires kernel 5.13 or later"`,
			"unable to create proxier: unable to create ipv4 proxier: kube-proxy in nftables mode requires kernel 5.13 or later"},
		{"an error of several lines", severalLines, "nftables sync failed: /dev/stdin:4:1-5: Error: No such file or directory\nadd rule ip kube-proxy x (ipFamily=IPv4, attempts=2)"},
		{"a panic", goPanic, "panic: runtime error: invalid memory address or nil pointer dereference"},
		{"an error without a cause", deprecated, "The ipvs proxier has been deprecated and will be disabled by default in Kubernetes 1.40 and removed in Kubernetes 1.43. Migrate to the 'nftables' proxier instead."},
		{"a fatal line", "F1130 02:28:38.200010      13 main.go:1] could not: it broke\n", "could not: it broke"},
		{"no errors", "I1130 02:28:38.254307      13 server.go:530] \"Version info\" version=\"v1.37.2\"\n", "Version info (version=v1.37.2)"},
		{"not klog", "exec: no such file\n\n", "exec: no such file"},
		{"nothing", "", "it logged nothing"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			assert.Equal(t, tt.want, ExitReason(tt.log))
		})
	}
}

func TestErrorsIn(t *testing.T) {
	assert.Equal(t, []string{
		`server.go:145] "Error running ProxyServer" err="can't use the IPVS proxier: ipvs not supported by the kernel"`,
		`run.go:72] "command failed" err="can't use the IPVS proxier: ipvs not supported by the kernel"`,
		"proxier.go:1866] \"nftables sync failed\" err=<\n\t/dev/stdin:4:1-5: Error: No such file or directory\n\tadd rule ip kube-proxy x\n > ipFamily=\"IPv4\" attempts=2",
	}, ErrorsIn(noIPVS+severalLines+noIPVS+severalLines))
	cut, _, _ := strings.Cut(severalLines, " >")
	assert.Len(t, ErrorsIn(cut, noIPVS), 3, "a log that ends within a value does not swallow the next one")
	assert.Empty(t, ErrorsIn(""))
}

func TestRecordFields(t *testing.T) {
	for _, tt := range []struct {
		body    string
		message string
		pairs   []pair
	}{
		{`"Successfully retrieved NodeIPs" NodeIPs=["192.0.2.1","2001:db8::1"] x=1`, "Successfully retrieved NodeIPs", []pair{{"NodeIPs", `["192.0.2.1","2001:db8::1"]`}, {"x", "1"}}},
		{`"kube-proxy running in dual-stack mode" primary ipFamily="IPv4"`, "kube-proxy running in dual-stack mode", []pair{{"primary ipFamily", "IPv4"}}},
		{`"Updated" featureGates={"A":true,"B b":false}`, "Updated", []pair{{"featureGates", `{"A":true,"B b":false}`}}},
		{`"empty" a="" b= c=3`, "empty", []pair{{"a", ""}, {"b", ""}, {"c", "3"}}},
		{"FLAG: --v=\"0\"", "FLAG: --v=\"0\"", nil},
		{"`raw` x=1", "`raw` x=1", nil},
	} {
		t.Run(tt.body, func(t *testing.T) {
			message, pairs := record{body: tt.body}.fields()
			assert.Equal(t, tt.message, message)
			assert.Equal(t, tt.pairs, pairs)
		})
	}
}

func TestRecordTime(t *testing.T) {
	newYear := time.Date(2027, 1, 1, 0, 0, 1, 0, time.UTC)
	got, ok := record{when: "1231 23:59:59.000001"}.time(newYear)
	assert.True(t, ok)
	assert.Equal(t, time.Date(2026, 12, 31, 23, 59, 59, 1000, time.UTC), got)
	_, ok = record{}.time(newYear)
	assert.False(t, ok)
}
