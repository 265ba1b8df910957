// Package netns is the synthetic substrate: nodes, pods and machines outside the cluster as network namespaces of one kernel,
// joined by veth pairs and bridges, with real kube-proxy processes on the nodes.
//
// It expects to run where it may create namespaces and mounts and where nothing else lives: inside package machine's sandbox
// (private user, pid, mount and net namespaces) or as init of a VM. Nothing is ever named under /run or on disk, so that the
// kernel takes everything back when the process dies.
//
//	                 wire (bridges br-eth0, br-eth1)
//	  +---------+---------+---------+---------+
//	  n1        n2        ext       other            eth0: 192.168.10.0/24, fd00:10::/64
//	  |         |         |                          eth1: 192.168.20.0/24, fd00:20::/64 (n1, n2, ext)
//	s1 c1     s2 c2                                  pods: 10.244.N.0/24, fd00:244:N::/64, routed, one veth each
//
// See [topology.Standard] for every address.
package netns
