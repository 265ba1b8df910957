package kindenv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// snapshot is what a host is taken back to after each cell: scripts run tools that change more than the env knows of.
type snapshot struct {
	links     []string
	addresses []netlink.Addr
	routes    []netlink.Route
	sysctls   map[string]string // path -> value
	iptables  map[string]string // restoring command -> rules
	ipsets    []string
	nftTables []*nftables.Table

	// generation is the ruleset's, 0 where rules of iptables have none. That a host has it still, as pods mostly do, says that its rules are
	// the same.
	generation uint32
}

// take reads a host's state.
func (h *host) take(ctx context.Context) (*snapshot, error) {
	s := &snapshot{iptables: map[string]string{}}
	links, err := h.nl.LinkList()
	if err != nil {
		return nil, fmt.Errorf("%s: links: %w", h.Name(), err)
	}
	for _, l := range links {
		s.links = append(s.links, l.Attrs().Name)
	}
	if s.addresses, err = h.nl.AddrList(nil, netlink.FAMILY_ALL); err != nil {
		return nil, fmt.Errorf("%s: addresses: %w", h.Name(), err)
	}
	if s.routes, err = h.mainRoutes(); err != nil {
		return nil, err
	}
	if s.sysctls, err = h.allSysctls(); err != nil {
		return nil, err
	}
	for save, restore := range map[string]string{"iptables-save": "iptables-restore", "ip6tables-save": "ip6tables-restore"} {
		if s.iptables[restore], err = h.Run(ctx, save); err != nil {
			return nil, err
		}
	}
	if s.ipsets, err = h.ipsets(); err != nil {
		return nil, err
	}
	if s.nftTables, err = h.foreignTables(); err != nil {
		return nil, err
	}
	version, err := h.Run(ctx, "iptables", "--version")
	if err != nil || !strings.Contains(version, "nf_tables") {
		return s, err
	}
	s.generation, err = h.generation()
	return s, err
}

func (h *host) mainRoutes() (all []netlink.Route, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := h.nl.RouteList(nil, family)
		if err != nil {
			return nil, fmt.Errorf("%s: routes: %w", h.Name(), err)
		}
		for _, r := range routes {
			if r.Protocol != unix.RTPROT_KERNEL { // those come and go with the addresses
				all = append(all, r)
			}
		}
	}
	return all, nil
}

// allSysctls reads what the host's network namespace lets read and write, but for what is an action or counts.
func (h *host) allSysctls() (map[string]string, error) {
	values := map[string]string{}
	err := h.Do(func() error {
		for _, root := range []string{"/proc/sys/net/ipv4", "/proc/sys/net/ipv6", "/proc/sys/net/netfilter"} {
			err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return nil // of a link that has gone
				}
				if info, err := d.Info(); err != nil || info.Mode()&0o600 != 0o600 || strings.HasSuffix(path, "/nf_conntrack_count") {
					return nil
				}
				if value, err := os.ReadFile(path); err == nil {
					values[path] = string(value)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return values, err
}

// foreignTables lists the nft tables but kube-proxy's own and those of iptables, which is restored by its own tools. It does not ask nft, which
// may crash on what a cell has left (kubernetes/kubernetes#136786).
func (h *host) foreignTables() (tables []*nftables.Table, err error) {
	err = h.Do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		tables, err = c.ListTables()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: nft tables: %w", h.Name(), err)
	}
	return slices.DeleteFunc(tables, func(t *nftables.Table) bool {
		ip := t.Family == nftables.TableFamilyIPv4 || t.Family == nftables.TableFamilyIPv6
		return ip && slices.Contains([]string{proxyTable, "filter", "nat", "mangle", "raw", "security"}, t.Name)
	}), nil
}

const proxyTable = "kube-proxy" // of nftables mode, in ip and ip6

var proxyTables = []*nftables.Table{{Family: nftables.TableFamilyIPv4, Name: proxyTable}, {Family: nftables.TableFamilyIPv6, Name: proxyTable}}

// dropTables deletes the tables that are there.
func (h *host) dropTables(tables ...*nftables.Table) error {
	return h.Do(func() error {
		for _, t := range tables {
			c, err := nftables.New()
			if err != nil {
				return err
			}
			c.DelTable(t)
			if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("%s: delete nft table %s: %w", h.Name(), t.Name, err)
			}
		}
		return nil
	})
}

// restore takes the host back to the snapshot. Each step goes on after the one before has failed.
func (h *host) restore(ctx context.Context, s *snapshot) error {
	return errors.Join(h.restoreRules(ctx, s), h.restoreLinks(s), h.restoreAddresses(s), h.restoreRoutes(s), h.restoreSysctls(s))
}

// restoreRules takes rules and then sets back, unless nobody has touched either.
func (h *host) restoreRules(ctx context.Context, s *snapshot) error {
	now, err := h.generation()
	if err != nil {
		return err
	}
	if s.generation == 0 || now != s.generation {
		// A table that nft would choke on goes before nft's relatives are asked for anything.
		if err := errors.Join(h.dropNewTables(s), h.dropTables(proxyTables...), h.restoreTables(ctx, s)); err != nil {
			return err
		}
		if s.generation != 0 {
			if s.generation, err = h.generation(); err != nil {
				return err
			}
		}
	}
	return h.restoreSets(ctx, s)
}

// podLink reports whether a node's link is a pod's, by the name that the CNI plugins give it: those come and go with the pods.
func podLink(name string) bool { return strings.HasPrefix(name, "veth") }

func (h *host) restoreLinks(s *snapshot) error {
	links, err := h.nl.LinkList()
	for _, l := range links {
		if name := l.Attrs().Name; !slices.Contains(s.links, name) && !podLink(name) {
			err = errors.Join(err, h.nl.LinkDel(l))
		}
	}
	return err
}

func (h *host) restoreAddresses(s *snapshot) error {
	now, err := h.nl.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("%s: addresses: %w", h.Name(), err)
	}
	has := func(all []netlink.Addr, a netlink.Addr) bool {
		return slices.ContainsFunc(all, func(b netlink.Addr) bool { return a.LinkIndex == b.LinkIndex && a.IPNet.String() == b.IPNet.String() })
	}
	for _, a := range now {
		if link, linkErr := h.nl.LinkByIndex(a.LinkIndex); linkErr == nil && !has(s.addresses, a) && !podLink(link.Attrs().Name) {
			err = errors.Join(err, h.nl.AddrDel(link, &a))
		}
	}
	for _, a := range s.addresses {
		if link, linkErr := h.nl.LinkByIndex(a.LinkIndex); linkErr == nil && !has(now, a) {
			a.Flags |= unix.IFA_F_NODAD
			err = errors.Join(err, h.nl.AddrAdd(link, &a))
		}
	}
	return err
}

func (h *host) restoreRoutes(s *snapshot) error {
	now, err := h.mainRoutes()
	if err != nil {
		return err
	}
	has := func(all []netlink.Route, r netlink.Route) bool {
		return slices.ContainsFunc(all, func(o netlink.Route) bool { return o.String() == r.String() })
	}
	for _, r := range now {
		if link, linkErr := h.nl.LinkByIndex(r.LinkIndex); linkErr == nil && !has(s.routes, r) && !podLink(link.Attrs().Name) {
			if delErr := h.nl.RouteDel(&r); delErr != nil && !errors.Is(delErr, unix.ESRCH) {
				err = errors.Join(err, fmt.Errorf("%s: remove route %s: %w", h.Name(), r, delErr))
			}
		}
	}
	for _, r := range s.routes {
		if _, linkErr := h.nl.LinkByIndex(r.LinkIndex); linkErr == nil && !has(now, r) {
			if addErr := h.nl.RouteReplace(&r); addErr != nil {
				err = errors.Join(err, fmt.Errorf("%s: restore route %s: %w", h.Name(), r, addErr))
			}
		}
	}
	return err
}

func (h *host) restoreSysctls(s *snapshot) error {
	now, err := h.allSysctls()
	if err != nil {
		return err
	}
	var changed []string
	for path, value := range now {
		if before, ok := s.sysctls[path]; ok && before != value {
			changed = append(changed, path)
		}
	}
	// conf/all is written through to each interface: those come after it.
	slices.SortFunc(changed, func(a, b string) int {
		first := func(p string) int {
			if strings.Contains(p, "/all/") {
				return 0
			}
			return 1
		}
		return first(a) - first(b)
	})
	return errors.Join(err, h.Do(func() error {
		var errs []error
		for _, path := range changed {
			errs = append(errs, os.WriteFile(path, []byte(s.sysctls[path]), 0))
		}
		return errors.Join(errs...)
	}))
}

func (h *host) restoreTables(ctx context.Context, s *snapshot) error {
	var errs []error
	for restore, rules := range s.iptables {
		_, err := h.Run(ctx, "sh", "-c", `printf '%s\n' "$1" | "$2"`, "sh", emptied(rules), restore)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// restoreSets destroys the ipsets that a cell has made, once no rule refers to them.
func (h *host) restoreSets(ctx context.Context, s *snapshot) error {
	now, err := h.ipsets()
	for _, set := range now {
		if !slices.Contains(s.ipsets, set) {
			_, destroyErr := h.Run(ctx, "ipset", "destroy", set)
			err = errors.Join(err, destroyErr)
		}
	}
	return err
}

// dropNewTables deletes the tables of others that the snapshot does not have.
func (h *host) dropNewTables(s *snapshot) error {
	tables, err := h.foreignTables()
	if err != nil {
		return err
	}
	return h.dropTables(slices.DeleteFunc(tables, func(t *nftables.Table) bool {
		return slices.ContainsFunc(s.nftTables, func(have *nftables.Table) bool { return have.Family == t.Family && have.Name == t.Name })
	})...)
}

// emptied adds to saved rules the tables that a cell may have used and the snapshot does not have, without a rule.
func emptied(rules string) string {
	for table, chains := range map[string][]string{
		"filter": {"INPUT", "FORWARD", "OUTPUT"},
		"nat":    {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"},
		"mangle": {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"},
	} {
		if strings.Contains("\n"+rules, "\n*"+table+"\n") {
			continue
		}
		rules += "\n*" + table + "\n"
		for _, c := range chains {
			rules += ":" + c + " ACCEPT [0:0]\n"
		}
		rules += "COMMIT\n"
	}
	return rules
}
