package kindenv

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kplab/lab/topology"
)

// start is what cells begin with on every host, whatever the cluster's maker has set. The errors that a host
// answers with are not limited to one a second, or the seventh refusal in a row would look like a timeout.
var start = map[string]string{
	"net.ipv4.icmp_ratemask":                            "0",
	"net.ipv6.icmp.ratelimit":                           "0",
	"net.ipv4.conf.all.route_localnet":                  "0",
	"net.ipv4.conf.all.arp_ignore":                      "0",
	"net.ipv4.conf.all.arp_announce":                    "0",
	"net.netfilter.nf_conntrack_tcp_be_liberal":         "0",
	"net.ipv4.vs.conntrack":                             "0",
	"net.netfilter.nf_conntrack_tcp_loose":              "1",
	"net.ipv4.conf.default.route_localnet":              "0",
	"net.netfilter.nf_conntrack_udp_timeout":            "30",
	"net.netfilter.nf_conntrack_tcp_ignore_invalid_rst": "0",
}

// wipe removes every mode's state from a node that the cluster's maker has set up. It does not rely on kube-proxy --cleanup, which is one of the
// things under test; the kubelet's and the engine's own rules stay.
const wipe = `
for save in iptables-save ip6tables-save; do
	restore=${save%-save}-restore
	$save | awk '!/KUBE-/ || /KUBE-(FIREWALL|KUBELET)/' | $restore || exit 1
done
ip link show kube-ipvs0 >/dev/null 2>&1 && { ip link del kube-ipvs0 || exit 1; }
for set in $(ipset list -name 2>/dev/null | grep ^KUBE-); do ipset destroy $set || exit 1; done
exit 0
`

// reset removes what cells left in the cluster and on its hosts.
func (f *Fixture) reset(ctx context.Context) error {
	if err := f.takeBack(ctx); err != nil {
		return err
	}
	if err := f.removeObjects(ctx); err != nil {
		return err
	}
	var g errgroup.Group
	for _, h := range f.hosts {
		g.Go(func() error {
			if h.begin != nil {
				if err := h.restore(ctx, h.begin); err != nil {
					return err
				}
			}
			if h.spec.Role == topology.NodeRole {
				if err := h.removeProxyState(ctx); err != nil {
					return err
				}
			}
			if h.begin != nil {
				return nil
			}
			for key, value := range start {
				if _, ok := h.sysctl(key); !ok {
					continue // the kernel lacks it
				}
				if err := h.setSysctl(key, value); err != nil {
					return err
				}
			}
			var err error
			h.begin, err = h.take(ctx)
			return err
		})
	}
	return g.Wait()
}

// removeProxyState removes what kube-proxy has left on a node and the snapshot of a node does not tell. The first time, there is none to go back to.
func (h *host) removeProxyState(ctx context.Context) error {
	if h.begin == nil {
		if err := h.dropTables(proxyTables...); err != nil {
			return err
		}
		if _, err := h.Run(ctx, "sh", "-c", wipe); err != nil {
			return err
		}
	}
	err := h.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) }) // of all families
	if err != nil {
		return fmt.Errorf("%s: flush connection tracking: %w", h.Name(), err)
	}
	if h.Do(func() error { _, err := os.Stat("/proc/thread-self/net/ip_vs"); return err }) == nil {
		_, err = h.Run(ctx, "ipvsadm", "-C")
	}
	return err
}

// removeObjects removes kube-proxy pods and their ConfigMaps, and every Service and EndpointSlice of the namespaces that cells write to.
func (f *Fixture) removeObjects(ctx context.Context) error {
	now := int64(0)
	byLabel := metav1.ListOptions{LabelSelector: "kplab/cell"}
	at := metav1.DeleteOptions{GracePeriodSeconds: &now}
	core := f.client.CoreV1()
	f.markers.Lock()
	f.marker = nil // it goes with the others
	f.markers.Unlock()
	err := errors.Join(
		core.Pods(proxyNamespace).DeleteCollection(ctx, at, byLabel),
		core.ConfigMaps(proxyNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, byLabel),
	)
	for _, namespace := range []string{corev1.NamespaceDefault, markerNamespace} {
		services, listErr := core.Services(namespace).List(ctx, metav1.ListOptions{})
		if listErr != nil {
			return errors.Join(err, listErr)
		}
		for _, s := range services.Items {
			if s.Name != "kubernetes" {
				err = errors.Join(err, core.Services(namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}))
			}
		}
		slices, listErr := f.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
		if listErr != nil {
			return errors.Join(err, listErr)
		}
		for _, s := range slices.Items {
			if s.Name == "kubernetes" {
				continue
			}
			if e := f.client.DiscoveryV1().EndpointSlices(namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}); !isNotFound(e) {
				err = errors.Join(err, e)
			}
		}
	}
	if err != nil {
		return err
	}
	return f.poll(ctx, "kube-proxies of the last cell are gone", func() (bool, error) {
		for _, name := range []string{"n1", "n2"} {
			if runs, err := f.hosts[name].runs("kube-proxy"); err != nil || runs {
				return false, errors.Join(err, fmt.Errorf("one runs on %s", name))
			}
		}
		return true, nil
	})
}
