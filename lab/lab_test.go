package lab

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestSuggest(t *testing.T) {
	known := []string{"ipvs", "iptables", "nftables"}
	for word, want := range map[string]string{
		"nftable":  `: did you mean "nftables"?`,
		"IPVS":     `: did you mean "ipvs"?`,
		"iptabels": `: did you mean "iptables"?`,
		"ebpf":     ": known are ipvs, iptables, nftables",
		"":         ": known are ipvs, iptables, nftables",
	} {
		assert.Equal(t, want, Suggest(word, known), word)
	}
}

func TestCellNamesAndRepeatsItself(t *testing.T) {
	c := Cell{Scenario: "a", Mode: IPVS, Kernel: Kernel{Name: "trixie-backports:6.18"}, KubeProxy: "1.37.2", Userland: Userland{Name: "debian-12"}, Substrate: "netns"}
	assert.Equal(t, "a.ipvs.trixie-backports_6.18.1.37.2.debian-12.netns", c.ID())
	assert.Equal(t, "kplab repro a --mode ipvs --kernel trixie-backports:6.18 --kube-proxy 1.37.2", c.Repro())
	c.Kernel.Name, c.Userland.Name, c.KubeProxyPath = "/boot/vmlinuz", "debian-13", "./kube-proxy"
	assert.NotContains(t, c.ID(), "/", "it is a folder's name")
	assert.Equal(t, "kplab repro a --mode ipvs --kernel /boot/vmlinuz --kube-proxy ./kube-proxy --userland debian-13", c.Repro())
}

func TestCellOfAClusterNamesIt(t *testing.T) {
	c := Cell{Scenario: "a", Mode: IPVS, Kernel: Kernel{Name: "cluster"}, KubeProxy: "1.37.2", Userland: Userland{Name: "cluster"}, Substrate: ClusterSubstrate, Context: "staging"}
	assert.Equal(t, "kplab repro a --substrate cluster --context staging", c.Repro(), "the cluster has the rest")
	c.Kubeconfig, c.Context, c.PodImage = "/home/me/my config", "it's", "registry.example/busybox:1"
	assert.Equal(t, `kplab repro a --substrate cluster --kubeconfig '/home/me/my config' --pod-image registry.example/busybox:1 --context 'it'\''s'`, c.Repro())
}

func TestDeadlinesNeverShrink(t *testing.T) {
	assert.Equal(t, 10*time.Second, Deadlines{Unit: 10}.Of(time.Second))
	assert.Equal(t, time.Second, Deadlines{}.Of(time.Second))
	assert.Equal(t, time.Second, Deadlines{Unit: 0.5}.Of(time.Second))
}
