package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"kplab/lab"
)

// stateCommands look at, and change, what a node's kernel holds.
func (s *session) stateCommands() map[string]command {
	return map[string]command{
		"count": {
			args:    "NODE WHAT",
			summary: "count what kube-proxy leaves in a node's kernel",
			detail: []string{"WHAT: " + strings.Join(countNames(), ", ") + ". iptables-rules and iptables-chains are those named KUBE-*, IPv4 and IPv6 together, in both backends' view " +
				"of the userland's iptables; ipsets those named KUBE-*; nft-tables the tables named kube-proxy."},
			parse: func(args []string) (action, error) {
				if len(args) != 2 {
					return nil, errors.New("expected a node and what to count")
				}
				if !slices.Contains(countNames(), args[1]) {
					return nil, fmt.Errorf("cannot count %q%s", args[1], lab.Suggest(args[1], countNames()))
				}
				return s.onNode(1, func(ctx context.Context, n lab.Node, rest []string) error {
					v, err := s.count(ctx, n, rest[0])
					if err != nil {
						return err
					}
					s.observe(observation{what: "count " + n.Name() + " " + rest[0], outcome: strconv.Itoa(v)})
					return nil
				})(args)
			},
		},
		"link": {
			args:    "NODE INTERFACE",
			summary: "observe whether an interface is present or absent",
			detail:  []string{"Attributes: state (up or down), kind, noarp (true or false), addresses (how many), v4 and v6 (how many of each)."},
			parse:   s.onNode(1, func(ctx context.Context, n lab.Node, args []string) error { return s.link(ctx, n, args[0]) }),
		},
		"sysctl": {
			args:    "NODE KEY[=VALUE]",
			summary: "observe a sysctl of a node's network namespace, or set it",
			parse: s.onNode(1, func(_ context.Context, n lab.Node, args []string) error {
				key, value, set := strings.Cut(args[0], "=")
				path := "/proc/sys/" + strings.ReplaceAll(key, ".", "/")
				if set {
					return n.Do(func() error { return os.WriteFile(path, []byte(value), 0) })
				}
				var got []byte
				err := n.Do(func() (err error) {
					got, err = os.ReadFile(path)
					return err
				})
				if err != nil {
					return err
				}
				s.observe(observation{what: "sysctl " + n.Name() + " " + key, outcome: strings.TrimSpace(string(got))})
				return nil
			}),
		},
		"address": {
			args:    "NODE add|del INTERFACE CIDR",
			summary: "add an address to, or remove it from, an interface of a node",
			parse: func(args []string) (action, error) {
				if len(args) != 4 || args[1] != "add" && args[1] != "del" {
					return nil, errors.New("expected a node, add or del, an interface and an address in CIDR notation")
				}
				p, err := netip.ParsePrefix(args[3])
				if err != nil {
					return nil, err
				}
				return func(ctx context.Context) error {
					n, err := s.node(args[0])
					if err != nil {
						return err
					}
					return n.SetAddress(ctx, args[2], p, args[1] == "add")
				}, nil
			},
		},
		"exec": {
			args:    "[-may-fail] HOST COMMAND [ARG...]",
			summary: "run a tool of the userland on a host and observe its output",
			detail:  []string{"Attribute: code. A non-zero exit status is an error of the cell unless -may-fail is given; then the output is followed by what it said on stderr."},
			parse: func(args []string) (action, error) {
				mayFail := len(args) > 0 && args[0] == "-may-fail"
				if mayFail {
					args = args[1:]
				}
				if len(args) < 2 {
					return nil, errors.New("expected a host and a command")
				}
				return func(ctx context.Context) error { return s.exec(ctx, args[0], args[1:], mayFail) }, nil
			},
		},
		"conntrack": {
			args:    "NODE COUNTER",
			summary: "observe a counter of conntrack -S (invalid, insert_failed, drop, ...), summed over CPUs",
			parse: s.onNode(1, func(ctx context.Context, n lab.Node, args []string) error {
				out, err := n.Run(ctx, "conntrack", "-S")
				if err != nil {
					return err
				}
				re := regexp.MustCompile(`\b` + regexp.QuoteMeta(args[0]) + `=(\d+)`)
				found := re.FindAllStringSubmatch(out, -1)
				if found == nil {
					return fmt.Errorf("conntrack -S has no counter %q", args[0])
				}
				sum := 0
				for _, m := range found {
					v, _ := strconv.Atoi(m[1])
					sum += v
				}
				s.observe(observation{what: "conntrack " + n.Name() + " " + args[0], outcome: strconv.Itoa(sum)})
				return nil
			}),
		},
		"ipvs-connections": {
			args:    "[-4|-6] NODE TARGET ENDPOINT",
			summary: "observe how many active connections a node's IPVS table counts for one endpoint of a virtual server",
			parse: func(args []string) (action, error) {
				fams, args := takeFamilies(args)
				if len(args) != 3 || len(fams) != 1 {
					return nil, errors.New("expected a node, a target and an endpoint")
				}
				t, err := parseTarget(args[1])
				if err != nil {
					return nil, err
				}
				return s.onNode(2, func(ctx context.Context, n lab.Node, rest []string) error {
					v, err := s.ipvsConnections(ctx, n, t, fams[0], rest[1])
					if err != nil {
						return err
					}
					s.observe(observation{what: "ipvs-connections " + familyFlag(fams[0]) + strings.Join(args, " "), outcome: strconv.Itoa(v)})
					return nil
				})(args)
			},
		},
	}
}

// counter says how to count one kind of state: the lines of a command's output that match.
type counter struct {
	argv [][]string
	line *regexp.Regexp
}

var counters = map[string]counter{
	"virtual-servers":      {[][]string{{"ipvsadm", "-Sn"}}, regexp.MustCompile(`(?m)^-A `)},
	"real-servers":         {[][]string{{"ipvsadm", "-Sn"}}, regexp.MustCompile(`(?m)^-a `)},
	"ipsets":               {[][]string{{"ipset", "list", "-name"}}, regexp.MustCompile(`(?m)^KUBE-`)},
	"iptables-rules":       {[][]string{{"iptables-save"}, {"ip6tables-save"}}, regexp.MustCompile(`(?m)^-A .*KUBE-`)},
	"iptables-chains":      {[][]string{{"iptables-save"}, {"ip6tables-save"}}, regexp.MustCompile(`(?m)^:KUBE-`)},
	"nft-tables":           {[][]string{{"nft", "list", "tables"}}, regexp.MustCompile(`(?m)^table ip6? kube-proxy$`)},
	"kube-ipvs0-addresses": {[][]string{{"ip", "-o", "addr", "show"}}, regexp.MustCompile(`(?m)^\d+: kube-ipvs0 .*scope global`)},
}

func countNames() (names []string) {
	for name := range counters {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (s *session) count(ctx context.Context, n lab.Node, what string) (int, error) {
	v, _, err := s.countBy(ctx, n.Run, what)
	return v, err
}

// runner runs a tool on a node.
type runner func(ctx context.Context, argv ...string) (stdout string, err error)

// toolsOf runs each tool on a node once and then knows what it said.
func toolsOf(n lab.Node) runner {
	said := map[string]string{}
	return func(ctx context.Context, argv ...string) (string, error) {
		key := strings.Join(argv, " ")
		if out, ok := said[key]; ok {
			return out, nil
		}
		out, err := n.Run(ctx, argv...)
		if err == nil {
			said[key] = out
		}
		return out, err
	}
}

// countBy counts one kind of state; known is false where the kernel has no such kind, and the count then 0.
func (s *session) countBy(ctx context.Context, run runner, what string) (total int, known bool, err error) {
	c := counters[what]
	if c.argv[0][0] == "ipvsadm" && !s.Machine.Features["ip_vs"] {
		return 0, false, nil // a kernel without IP_VS has no virtual servers; ipvsadm would only fail
	}
	for _, argv := range c.argv {
		out, err := run(ctx, argv...)
		if err != nil {
			return 0, false, err
		}
		total += len(c.line.FindAllString(out, -1))
	}
	return total, true, nil
}

// link reads `ip -j -d addr show`.
func (s *session) link(ctx context.Context, n lab.Node, name string) error {
	out, err := n.Run(ctx, "ip", "-j", "-d", "addr", "show")
	if err != nil {
		return err
	}
	var links []struct {
		Name     string   `json:"ifname"`
		Flags    []string `json:"flags"`
		LinkInfo struct {
			Kind string `json:"info_kind"`
		} `json:"linkinfo"`
		Addrs []struct{ Family, Scope string } `json:"addr_info"`
	}
	if err := json.Unmarshal([]byte(out), &links); err != nil {
		return fmt.Errorf("ip -j addr on %s: %w", n.Name(), err)
	}
	o := observation{what: "link " + n.Name() + " " + name, outcome: "absent"}
	for _, l := range links {
		if l.Name != name {
			continue
		}
		v4, v6 := 0, 0
		for _, a := range l.Addrs {
			switch {
			case a.Family == "inet":
				v4++
			case a.Scope == "global":
				v6++
			}
		}
		state := "down"
		if slices.Contains(l.Flags, "UP") {
			state = "up"
		}
		o.outcome = "present"
		o.attrs = map[string]string{
			"state": state, "kind": l.LinkInfo.Kind, "noarp": strconv.FormatBool(slices.Contains(l.Flags, "NOARP")),
			"addresses": strconv.Itoa(v4 + v6), "v4": strconv.Itoa(v4), "v6": strconv.Itoa(v6),
		}
		o.got = fmt.Sprintf("present (%s, %s, %d addresses)", l.LinkInfo.Kind, state, v4+v6)
	}
	s.observe(o)
	return nil
}

func (s *session) exec(ctx context.Context, host string, argv []string, mayFail bool) error {
	h, err := s.Env.Host(host)
	if err != nil {
		return err
	}
	ctx, cancel := s.deadline(ctx, toolDeadline)
	defer cancel()
	out, err := h.Run(ctx, argv...)
	code := 0
	var exit *lab.ExitError
	if errors.As(err, &exit) && exit.Err == nil && mayFail {
		code, out = exit.Code, out+exit.Stderr
	} else if err != nil {
		return err
	}
	out = strings.TrimSpace(out)
	o := observation{what: "exec " + host + " " + strings.Join(argv, " "), outcome: out, attrs: map[string]string{"code": strconv.Itoa(code)}}
	if strings.Contains(out, "\n") || len(out) > 100 {
		o.got = fmt.Sprintf("%.100q...", out)
	}
	s.observe(o)
	return nil
}

// ipvsConnections reads ActiveConn of one real server off `ipvsadm -Ln`:
//
//	TCP  10.96.0.10:80 lc
//	  -> 10.244.1.10:8080             Masq    1      5          0
func (s *session) ipvsConnections(ctx context.Context, n lab.Node, t target, family lab.Family, endpoint string) (int, error) {
	vip, err := s.resolve(ctx, t, n, "tcp", family)
	if err != nil {
		return 0, err
	}
	pod, err := s.Env.Host(endpoint)
	if err != nil {
		return 0, err
	}
	ip, ok := pod.Address("primary", family)
	if !ok {
		return 0, fmt.Errorf("%s has no IPv%d address", endpoint, family)
	}
	out, err := n.Run(ctx, "ipvsadm", "-Ln")
	if err != nil {
		return 0, err
	}
	server := ""
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		switch {
		case len(f) >= 2 && f[0] == "TCP":
			server = f[1]
		case len(f) == 6 && f[0] == "->" && server == vip.String():
			if real, err := netip.ParseAddrPort(f[1]); err == nil && real.Addr() == ip {
				return strconv.Atoi(f[4])
			}
		}
	}
	return 0, fmt.Errorf("%s: ipvsadm -Ln shows no real server %s behind %s:\n%s", n.Name(), ip, vip, out)
}
