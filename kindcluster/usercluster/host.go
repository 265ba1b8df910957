package usercluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"kplab/lab"
	"kplab/lab/probe"
	"kplab/lab/remote"
	"kplab/lab/topology"
)

// host is a pod, which may be in the network of its node. It implements lab.Host and probe.Remote.
type host struct {
	name      string
	spec      topology.HostSpec
	addresses map[string][]netip.Addr // by name
	owned     []netip.Addr            // every address by which others see it
	client    *remote.Client          // nil where there is no pod
}

var _ probe.Remote = (*host)(nil)

// Name implements lab.Host.
func (h *host) Name() string { return h.name }

// Address implements lab.Host.
func (h *host) Address(name string, family lab.Family) (netip.Addr, bool) {
	return addressOf(h.addresses[name], family)
}

func addressOf(all []netip.Addr, family lab.Family) (netip.Addr, bool) {
	for _, a := range all {
		if a.Is6() == (family == lab.IPv6) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// Dial implements probe.Remote.
func (h *host) Dial(ctx context.Context, r probe.Request) (probe.Outcome, error) {
	if h.client == nil {
		return probe.Outcome{}, fmt.Errorf("%s: there is no pod to probe from", h.name)
	}
	return h.client.Dial(ctx, r)
}

// Do implements lab.Host.
func (h *host) Do(func() error) error {
	return fmt.Errorf("%s is a pod of another machine: only whole probes can be sent from there", h.name)
}

// Run implements lab.Host.
func (h *host) Run(_ context.Context, argv ...string) (string, error) {
	return "", &lab.ExitError{Where: h.name, Argv: argv, Err: errors.New("no tool is run in a cluster that is in use")}
}

// outside is this machine. It implements lab.Host.
type outside struct {
	probe.Here
	addresses map[string][]netip.Addr

	mu    sync.Mutex
	owned []netip.Addr
}

// Name implements lab.Host.
func (o *outside) Name() string { return "ext" }

// Address implements lab.Host.
func (o *outside) Address(name string, family lab.Family) (netip.Addr, bool) {
	return addressOf(o.addresses[name], family)
}

// Run implements lab.Host.
func (o *outside) Run(_ context.Context, argv ...string) (string, error) {
	return "", &lab.ExitError{Where: "ext", Argv: argv, Err: errors.New("no tool is run on this machine")}
}

// Lacks implements lab.Partial, on the env.
func (f *Fixture) Lacks(from, place string, family lab.Family) string {
	if why := f.lacksHost(from, family); why != "" {
		return why
	}
	if kind, _, object := strings.Cut(place, "/"); object {
		if from == "ext" && kind == "svc" {
			return "this machine knows no way to ClusterIPs"
		}
		return ""
	}
	name, address, named := strings.Cut(place, ".")
	if place == "localhost" {
		name, address = from, "localhost"
	} else if !named {
		address = "primary"
	}
	if name == "ext" && address == "localhost" {
		return ""
	}
	h := f.hosts[name]
	switch {
	case name == "ext":
		return "by which address pods reach this machine is not known"
	case h == nil:
		return fmt.Sprintf("there is no host %s", name)
	case from == "ext" && h.spec.Role != topology.NodeRole:
		return "this machine knows no way to pods"
	case len(h.addresses[address]) == 0:
		return fmt.Sprintf("which %s address %s has is not known", address, name)
	}
	if _, ok := h.Address(address, family); !ok {
		return fmt.Sprintf("%s has no IPv%d address", name, family)
	}
	return ""
}

// lacksHost is why nothing can be sent from a host in a family.
func (f *Fixture) lacksHost(name string, family lab.Family) string {
	if why := f.missing[name]; why != "" {
		return why
	}
	if _, ok := f.hosts["c1"].Address("primary", family); !ok {
		return fmt.Sprintf("the cluster's pods have no IPv%d", family)
	}
	if name == "ext" {
		return f.missing[fmt.Sprintf("ext/%d", family)]
	}
	h := f.hosts[name]
	if h == nil {
		return fmt.Sprintf("there is no host %s", name)
	}
	if _, ok := h.Address("primary", family); !ok {
		return fmt.Sprintf("%s has no IPv%d address", name, family)
	}
	return ""
}

// lackings are the lines that say what the cluster lacks.
func (f *Fixture) lackings() (lines []string) {
	seen := map[string]bool{}
	for _, name := range []string{"n1", "n2", "s1", "s2", "c1", "c2", "ext"} {
		for _, family := range []lab.Family{lab.IPv4, lab.IPv6} {
			if why := f.lacksHost(name, family); why != "" && !seen[why] {
				seen[why] = true
				lines = append(lines, "probes are left out: "+why)
			}
		}
	}
	return lines
}
