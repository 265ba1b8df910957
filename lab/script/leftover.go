package script

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"kplab/lab"
	"kplab/lab/evidence"
)

// leftoverCommands record what kube-proxy leaves in a node's kernel, and what it takes that is not its own.
func (s *session) leftoverCommands() map[string]command {
	return map[string]command{
		"plant": {
			args:    "NODE KIND NAME",
			summary: "put into a node's kernel something that is not kube-proxy's; each 'state' from then on says whether it is kept",
			detail:  []string{"KIND: " + strings.Join(slices.Sorted(maps.Keys(plants)), ", ") + ". An nft-table is of family ip, an iptables-chain of table filter, and the NAME of a virtual-server its ADDRESS:PORT."},
			parse: func(args []string) (action, error) {
				if len(args) != 3 {
					return nil, errors.New("expected a node, a kind and a name")
				}
				kinds := slices.Sorted(maps.Keys(plants))
				if !slices.Contains(kinds, args[1]) {
					return nil, fmt.Errorf("unknown kind %q%s", args[1], lab.Suggest(args[1], kinds))
				}
				return s.onNode(2, func(ctx context.Context, n lab.Node, rest []string) error {
					return s.plant(ctx, n, planted{n.Name(), rest[0], rest[1]})
				})(args)
			},
		},
		"state": {
			args:    "NODE WHEN [beyond NODE]",
			summary: "keep with the results what a node's kernel holds of kube-proxy's, by kind, and whether what was planted is kept",
			detail: []string{"WHEN says in words which moment it is. Kept are: counts (virtual and real servers, addresses of kube-ipvs0, ipsets, nft tables, and chains and rules of each table of iptables and ip6tables), named as count does, without what was planted; the size of the conntrack table; " +
				"and the sysctls that kube-proxy touches, where they differ from the node's first state. What a kernel without IP_VS has none of is not counted.",
				"Beyond a node on which kube-proxy has run in the same mode from the start, what there is more of here is left over.",
				"Observes in words what the node holds, or what is left over. Attributes: the kinds (virtual-servers, iptables-chains, ...), those left over with left- before (left-ipsets), kept and lost (of what was planted)."},
			parse: func(args []string) (action, error) {
				if len(args) != 2 && (len(args) != 4 || args[2] != "beyond") {
					return nil, errors.New("expected a node and in quotes which moment it is, and perhaps beyond and another node")
				}
				return func(ctx context.Context) error {
					return s.lookAtState(ctx, args[0], args[1], strings.Join(args[min(3, len(args)):], ""))
				}, nil
			},
		},
	}
}

// planted is what a script has put into a node's kernel.
type planted struct{ node, kind, name string }

// plants say how each kind is put there and what shows that it is there. NAME stands for the name.
var plants = map[string]struct {
	add  [][]string
	show []string
	line string
}{
	"nft-table":      {[][]string{{"nft", "add", "table", "ip", "NAME"}}, []string{"nft", "list", "tables"}, `(?m)^table ip NAME$`},
	"iptables-chain": {[][]string{{"iptables", "-N", "NAME"}, {"iptables", "-A", "NAME", "-j", "RETURN"}}, []string{"iptables-save"}, `(?m)^-A NAME -j RETURN$`},
	"ipset":          {[][]string{{"ipset", "create", "NAME", "hash:ip"}}, []string{"ipset", "list", "-name"}, `(?m)^NAME$`},
	"virtual-server": {[][]string{{"ipvsadm", "-A", "-t", "NAME", "-s", "rr"}}, []string{"ipvsadm", "-Sn"}, `(?m)^-A -t NAME `},
}

func (s *session) plant(ctx context.Context, n lab.Node, p planted) error {
	ctx, cancel := s.deadline(ctx, toolDeadline)
	defer cancel()
	for _, argv := range plants[p.kind].add {
		argv = slices.Clone(argv)
		for i, word := range argv {
			argv[i] = strings.ReplaceAll(word, "NAME", p.name)
		}
		if _, err := n.Run(ctx, argv...); err != nil {
			return err
		}
	}
	s.planted = append(s.planted, p)
	return nil
}

// lookAtState keeps a node's state, with what is left over beyond another node's if one is named.
func (s *session) lookAtState(ctx context.Context, node, when, beyond string) error {
	ctx, cancel := s.deadline(ctx, 2*toolDeadline)
	defer cancel()
	n, err := s.node(node)
	if err != nil {
		return err
	}
	state, values, err := s.stateOf(ctx, n)
	if err != nil {
		return err
	}
	state.Step, state.When = s.step(), when
	if first, ok := s.sysctls[node]; ok {
		state.Sysctls = differing(values, first)
	} else {
		s.sysctls[node] = values
	}
	o := observation{what: "state " + node + ": " + when, outcome: holdingsText(state.Holds), attrs: map[string]string{}}
	holdingsAttrs(o.attrs, "", state.Holds)
	if beyond != "" {
		other, err := s.node(beyond)
		if err != nil {
			return err
		}
		yardstick, theirs, err := s.stateOf(ctx, other)
		if err != nil {
			return err
		}
		state.Leftovers = &lab.Leftovers{Beyond: beyond, Holds: more(state.Holds, yardstick.Holds), Sysctls: differing(values, theirs)}
		o.outcome = "left over: " + holdingsText(state.Leftovers.Holds)
		holdingsAttrs(o.attrs, "left-", state.Leftovers.Holds)
	}
	kept := 0
	for _, f := range state.Foreign {
		if f.Kept {
			kept++
		}
	}
	o.attrs["kept"], o.attrs["lost"] = strconv.Itoa(kept), strconv.Itoa(len(state.Foreign)-kept)
	s.State(state)
	s.observe(o)
	return nil
}

// stateOf counts what a node holds, each tool run once.
func (s *session) stateOf(ctx context.Context, n lab.Node) (lab.State, map[string]string, error) {
	state := lab.State{Node: n.Name()}
	tools := toolsOf(n)
	h := &state.Holds
	for what, into := range map[string]**int{
		"virtual-servers": &h.VirtualServers, "real-servers": &h.RealServers, "kube-ipvs0-addresses": &h.KubeIPVS0Addresses, "ipsets": &h.IPSets, "nft-tables": &h.NFTTables,
	} {
		v, known, err := s.countBy(ctx, tools, what)
		if err != nil {
			return state, nil, err
		}
		if known && (s.Machine.Features["ip_vs"] || into != &h.KubeIPVS0Addresses) { // ipvs mode's interface goes with IP_VS
			*into = &v
		}
	}
	for tool, into := range map[string]*map[string]lab.TableCount{"iptables-save": &h.IPTables, "ip6tables-save": &h.IP6Tables} {
		out, err := tools(ctx, tool)
		if err != nil {
			return state, nil, err
		}
		*into = tableCounts(out)
	}
	for _, p := range s.planted {
		if p.node != n.Name() {
			continue
		}
		out, err := tools(ctx, plants[p.kind].show...)
		if err != nil {
			return state, nil, err
		}
		kept := regexp.MustCompile(strings.ReplaceAll(plants[p.kind].line, "NAME", regexp.QuoteMeta(p.name))).MatchString(out)
		state.Foreign = append(state.Foreign, lab.Foreign{Kind: p.kind, Name: p.name, Kept: kept})
		if p.kind == "virtual-server" && kept && h.VirtualServers != nil {
			*h.VirtualServers--
		}
	}
	out, err := tools(ctx, "conntrack", "-C")
	if err != nil {
		return state, nil, err
	}
	entries, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		return state, nil, fmt.Errorf("%s: conntrack -C: %w", n.Name(), err)
	}
	state.ConntrackEntries = &entries
	values, err := evidence.Sysctls(n)
	return state, values, err
}

// tableCounts counts, by table, what the counters of iptables match in a ruleset.
func tableCounts(save string) map[string]lab.TableCount {
	all := map[string]lab.TableCount{}
	table := ""
	for line := range strings.Lines(save) {
		name, begins := strings.CutPrefix(line, "*")
		if begins {
			table = strings.TrimSpace(name)
			continue
		}
		c := all[table]
		switch {
		case counters["iptables-chains"].line.MatchString(line):
			c.Chains++
		case counters["iptables-rules"].line.MatchString(line):
			c.Rules++
		default:
			continue
		}
		all[table] = c
	}
	return all
}

// kinds are a node's holdings by their names, in the order in which they are told.
func kinds(h lab.Holdings) (names []string, counts map[string]int) {
	counts = map[string]int{}
	add := func(name string, n *int) {
		if n != nil {
			names = append(names, name)
			counts[name] = *n
		}
	}
	add("virtual-servers", h.VirtualServers)
	add("real-servers", h.RealServers)
	add("kube-ipvs0-addresses", h.KubeIPVS0Addresses)
	add("ipsets", h.IPSets)
	add("nft-tables", h.NFTTables)
	chains, rules := 0, 0
	for _, tables := range []map[string]lab.TableCount{h.IPTables, h.IP6Tables} {
		for _, c := range tables {
			chains += c.Chains
			rules += c.Rules
		}
	}
	add("iptables-chains", &chains)
	add("iptables-rules", &rules)
	return names, counts
}

func holdingsAttrs(attrs map[string]string, prefix string, h lab.Holdings) {
	_, counts := kinds(h)
	for name, n := range counts {
		attrs[prefix+name] = strconv.Itoa(n)
	}
}

// holdingsText is "virtual-servers 12, ipsets 34", or "nothing".
func holdingsText(h lab.Holdings) string {
	var parts []string
	names, counts := kinds(h)
	for _, name := range names {
		if counts[name] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// more is what one node holds more of than another, kind by kind.
func more(h, than lab.Holdings) lab.Holdings {
	beyond := func(a, b *int) *int {
		if a == nil || b == nil || *a <= *b {
			return nil
		}
		n := *a - *b
		return &n
	}
	tables := func(a, b map[string]lab.TableCount) map[string]lab.TableCount {
		left := map[string]lab.TableCount{}
		for table, c := range a {
			if c = (lab.TableCount{Chains: max(0, c.Chains-b[table].Chains), Rules: max(0, c.Rules-b[table].Rules)}); c != (lab.TableCount{}) {
				left[table] = c
			}
		}
		return left
	}
	return lab.Holdings{
		VirtualServers:     beyond(h.VirtualServers, than.VirtualServers),
		RealServers:        beyond(h.RealServers, than.RealServers),
		KubeIPVS0Addresses: beyond(h.KubeIPVS0Addresses, than.KubeIPVS0Addresses),
		IPSets:             beyond(h.IPSets, than.IPSets),
		NFTTables:          beyond(h.NFTTables, than.NFTTables),
		IPTables:           tables(h.IPTables, than.IPTables),
		IP6Tables:          tables(h.IP6Tables, than.IP6Tables),
	}
}

// differing are the sysctls that are not as the others are.
func differing(values, others map[string]string) []lab.Sysctl {
	var all []lab.Sysctl
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if values[key] != others[key] {
			all = append(all, lab.Sysctl{Key: key, Value: values[key], Other: others[key]})
		}
	}
	return all
}
