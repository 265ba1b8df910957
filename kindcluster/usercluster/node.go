package usercluster

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Node is a node that a run uses.
type Node struct {
	Name      string
	Addresses []netip.Addr // InternalIPs
	Release   string       // of the kernel, as the kubelet reports it
	Kubelet   string       // version, without v
	Cores     int
	PodCIDRs  []netip.Prefix
	// Kubelet's port, 0 if it has none.
	KubeletPort int
}

// labels that make a node one of the control plane.
var controlPlane = []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"}

// chooseNodes takes two nodes as n1 and n2: Ready, schedulable Linux workers of this program's architecture, of one kernel if there are two
// such, else control planes too. The error says of each node why it is none.
func (c *Cluster) chooseNodes(ctx context.Context) ([2]Node, error) {
	list, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return [2]Node{}, fmt.Errorf("nodes of context %s: %w", c.Context, err)
	}
	var workers, others []Node
	var why []string
	slices.SortFunc(list.Items, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	for _, n := range list.Items {
		if reason := unsuitable(n); reason != "" {
			why = append(why, n.Name+" "+reason)
			continue
		}
		if ofControlPlane(n) {
			others = append(others, nodeOf(n))
		} else {
			workers = append(workers, nodeOf(n))
		}
	}
	usable := workers
	if len(usable) < 2 {
		usable = append(usable, others...)
	}
	if len(usable) < 2 {
		s := fmt.Sprintf("context %s: 2 Ready, schedulable Linux nodes (%s) with an InternalIP are needed, and %d of %d are", c.Context, runtime.GOARCH, len(usable), len(list.Items))
		if len(why) > 0 {
			s += ": " + strings.Join(why, "; ")
		}
		return [2]Node{}, fmt.Errorf("%s", s)
	}
	for i, a := range usable {
		for _, b := range usable[i+1:] {
			if a.Release == b.Release {
				return [2]Node{a, b}, nil
			}
		}
	}
	return [2]Node{usable[0], usable[1]}, nil
}

func ofControlPlane(n corev1.Node) bool {
	return slices.ContainsFunc(controlPlane, func(label string) bool { _, ok := n.Labels[label]; return ok })
}

// unsuitable is why a node cannot be n1 or n2, "" if it can.
func unsuitable(n corev1.Node) string {
	info := n.Status.NodeInfo
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	switch {
	case info.OperatingSystem != "linux":
		return "runs " + info.OperatingSystem
	case !ready:
		return "is not Ready"
	case n.Spec.Unschedulable:
		return "is cordoned"
	case info.Architecture != runtime.GOARCH:
		return fmt.Sprintf("is %s, and this kplab, which runs in the pods, is built for %s", info.Architecture, runtime.GOARCH)
	case len(nodeOf(n).Addresses) == 0:
		return "has no InternalIP"
	}
	for _, t := range n.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !slices.Contains(controlPlane, t.Key) {
			return fmt.Sprintf("is tainted (%s:%s)", t.Key, t.Effect)
		}
	}
	return ""
}

func nodeOf(n corev1.Node) Node {
	node := Node{
		Name: n.Name, Release: n.Status.NodeInfo.KernelVersion, Kubelet: strings.TrimPrefix(n.Status.NodeInfo.KubeletVersion, "v"),
		Cores: int(n.Status.Capacity.Cpu().Value()), KubeletPort: int(n.Status.DaemonEndpoints.KubeletEndpoint.Port),
	}
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			node.Addresses = append(node.Addresses, ip)
		}
	}
	for _, cidr := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(cidr); err == nil {
			node.PodCIDRs = append(node.PodCIDRs, p)
		}
	}
	return node
}
