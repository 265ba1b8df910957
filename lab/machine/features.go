package machine

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// featureProbes tries what a kernel can do by doing it in the current, private network namespace. What modules are loaded says nothing:
// a feature may be built in, or loaded when it is first asked for.
func featureProbes() map[string]func() error {
	comment := xt.Comment("kplab")
	return map[string]func() error{
		"bridge":         func() error { return addLink(&netlink.Bridge{LinkAttrs: named("kplab-br")}) },
		"conntrack":      func() error { _, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET); return err },
		"dummy":          func() error { return addLink(&netlink.Dummy{LinkAttrs: named("kplab-dummy")}) },
		"ip_set":         probeIPSet,
		"ip_vs":          probeIPVS,
		"ipv6":           func() error { _, err := os.Stat("/proc/sys/net/ipv6/conf"); return err },
		"netem":          probeNetem,
		"nf_tables":      func() error { return probeNFTables() },
		"nfnetlink_acct": probeAccounting,
		"nft_compat":     func() error { return probeNFTables(&expr.Match{Name: "comment", Info: &comment}) },
		"nft_fib":        func() error { return probeNFTables(&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true}) },
		"nft_numgen":     func() error { return probeNFTables(&expr.Numgen{Register: 1, Modulus: 2, Type: unix.NFT_NG_RANDOM}) },
		"sctp":           probeSCTP,
		"veth":           func() error { return addLink(&netlink.Veth{LinkAttrs: named("kplab-a"), PeerName: "kplab-b"}) },
	}
}

// Features says what this kernel can do, by name: bridge, conntrack, dummy, ip_set, ip_vs, ipv6, netem, nf_tables, nfnetlink_acct,
// nft_compat (iptables rules on nf_tables), nft_fib, nft_numgen, sctp, veth. Each is tried in a new network namespace, which makes the
// kernel load its module. The caller needs CAP_SYS_ADMIN; without, nothing is found.
func Features() map[string]bool {
	features := map[string]bool{}
	// One namespace for all: making one takes a slow machine longer than most probes.
	err := inNewNetns(func() error {
		for name, probe := range featureProbes() {
			features[name] = probe() == nil
		}
		return nil
	})
	if err != nil {
		clear(features)
	}
	return features
}

// FeatureNames lists the features that Features tells of, sorted.
func FeatureNames() []string { return slices.Sorted(maps.Keys(featureProbes())) }

// inNewNetns runs fn in a new network namespace, which ends with it.
func inNewNetns(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine and takes the namespace with it.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("make a network namespace: %w", err)
			return
		}
		result <- fn()
	}()
	return <-result
}

func named(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return a
}

func addLink(l netlink.Link) error { return netlink.LinkAdd(l) }

// probeIPVS asks for IPVS's netlink family. Asking loads its module only from 5.14 on; before, whoever wants IPVS runs modprobe.
func probeIPVS() error {
	if _, err := netlink.GenlFamilyGet("IPVS"); err == nil {
		return nil
	}
	if err := exec.Command("modprobe", "ip_vs").Run(); err != nil {
		return fmt.Errorf("load ip_vs: %w", err)
	}
	_, err := netlink.GenlFamilyGet("IPVS")
	return err
}

func probeIPSet() error {
	return netlink.IpsetCreate("kplab", "hash:ip,port", netlink.IpsetCreateOptions{})
}

func probeNetem() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	attrs := netlink.QdiscAttrs{LinkIndex: lo.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}
	return netlink.QdiscAdd(netlink.NewNetem(attrs, netlink.NetemQdiscAttrs{Latency: uint32(time.Millisecond.Microseconds())}))
}

// probeNFTables makes a table, a base chain and, if there are expressions, a rule of them.
func probeNFTables(rule ...expr.Any) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "kplab"})
	chain := c.AddChain(&nftables.Chain{
		Table: table, Name: "probe", Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityFilter,
	})
	if len(rule) > 0 {
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: rule})
	}
	return c.Flush()
}

// probeAccounting makes an accounting object, which kube-proxy's iptables mode counts some drops with.
func probeAccounting() error {
	const (
		nfnlSubsysAcct = 7 // NFNL_SUBSYS_ACCT
		nfnlMsgAcctNew = 0 // NFNL_MSG_ACCT_NEW
		nfacctName     = 1 // NFACCT_NAME
	)
	req := nl.NewNetlinkRequest(nfnlSubsysAcct<<8|nfnlMsgAcctNew, unix.NLM_F_ACK|unix.NLM_F_CREATE)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	req.AddData(nl.NewRtAttr(nfacctName, nl.ZeroTerminated("kplab")))
	_, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	return err
}

func probeSCTP() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
