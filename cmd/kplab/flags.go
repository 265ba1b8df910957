package main

import (
	"strings"

	"github.com/spf13/cobra"

	"kplab/lab"
	"kplab/lab/kubeproxy"
	"kplab/lab/plan"
	"kplab/scenarios"
)

// cellFlags are the flags that mean the same in every verb that runs cells.
type cellFlags struct {
	modes, kernels, proxies, userlands, substrates []string
	parallel                                       int
	out                                            string
	cache                                          string
	kind                                           kindOptions
	cluster                                        clusterOptions
}

// add adds them all.
func (f *cellFlags) add(c *cobra.Command, d plan.Matrix) {
	f.addSetting(c, d)
	flags := c.Flags()
	flags.StringSliceVar(&f.substrates, "substrate", d.Substrates, "what the env is made of: netns, kind, or cluster: one that exists already")
	flags.IntVarP(&f.parallel, "parallel", "j", d.Parallel, "cells at once on one machine; 0: as many as keep it busy, which is 2, and 3 in an emulated VM")
	flags.StringVar(&f.kind.image, "node-image", "", "kind node `image`, pulled if the engine does not have it (default: the one that kplab kind image builds)")
	flags.BoolVar(&f.kind.defaults, "kind-defaults", false, "keep kind's own kube-proxy settings (tcpBeLiberal in nftables mode), which hide behaviour")
	f.cluster.add(flags)
	complete(c, "substrate", plan.Substrates)
}

// addSetting adds those that name modes, kernels, versions and folders.
func (f *cellFlags) addSetting(c *cobra.Command, d plan.Matrix) {
	flags := c.Flags()
	var modes []string
	for _, m := range d.Modes {
		modes = append(modes, string(m))
	}
	flags.StringSliceVar(&f.modes, "mode", modes, "kube-proxy `modes`")
	flags.StringSliceVar(&f.kernels, "kernel", d.Kernels, "`kernels`: auto, host, debian-11, debian-12, debian-13, SUITE[:VERSION] or a vmlinuz's path")
	flags.StringSliceVar(&f.proxies, "kube-proxy", d.KubeProxies, "kube-proxy `versions`, or paths of binaries")
	flags.StringSliceVar(&f.userlands, "userland", d.Userlands, "whose nft, iptables and ipset kube-proxy calls: debian-12, debian-13 or host")
	flags.StringVar(&f.out, "out", "", "`folder` for the results (default results/TIME)")
	f.addCache(c)
	complete(c, "mode", []string{"ipvs", "iptables", "nftables"})
	complete(c, "kernel", []string{plan.Auto, plan.Host, "debian-11", "debian-12", "debian-13", "trixie-backports"})
	complete(c, "userland", plan.Userlands)
	complete(c, "kube-proxy", kubeproxy.Known())
}

// complete offers values for a flag.
func complete(c *cobra.Command, name string, values []string) {
	// The only error is a flag that does not exist.
	_ = c.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values, cobra.ShellCompDirectiveNoFileComp
	})
}

func (f *cellFlags) addCache(c *cobra.Command) {
	c.Flags().StringVar(&f.cache, "cache", "", "`folder` for kernels, userlands and kube-proxies (default: the user's cache folder, or $KPLAB_CACHE)")
}

// override puts the flags that the user gave into m.
func (f *cellFlags) override(c *cobra.Command, m *plan.Matrix) {
	set := c.Flags().Changed
	if set("mode") {
		m.Modes = nil
		for _, mode := range f.modes {
			m.Modes = append(m.Modes, lab.Mode(mode))
		}
	}
	for name, to := range map[string]*[]string{"kernel": &m.Kernels, "kube-proxy": &m.KubeProxies, "userland": &m.Userlands, "substrate": &m.Substrates} {
		if set(name) {
			*to = map[string][]string{"kernel": f.kernels, "kube-proxy": f.proxies, "userland": f.userlands, "substrate": f.substrates}[name]
		}
	}
	if set("parallel") {
		m.Parallel = f.parallel
	}
	for i, v := range m.KubeProxies {
		m.KubeProxies[i] = strings.TrimPrefix(v, "v")
	}
}

// completeScenarios offers the scenarios' names.
func completeScenarios(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	all, err := scenarios.All()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Name+"\t"+s.Summary)
	}
	return names, cobra.ShellCompDirectiveDefault
}
