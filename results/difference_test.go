package results

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"kplab/lab"
)

func TestDifferences(t *testing.T) {
	const a, b = "probe ext tcp n1.secondary:nodeport/web", "probe ext tcp n1:nodeport/web"
	at := func(line, what, expected, observed string) lab.Check {
		return check("s.txtar:"+line, "", what, expected, observed)
	}
	for name, tt := range map[string]struct {
		ipvs, iptables, nftables []lab.Check
		want                     []string
	}{
		"lines of their own": {
			[]lab.Check{at("13", a, "reachable", "reachable")}, []lab.Check{at("13", a, "reachable", "reachable")}, []lab.Check{at("12", a, "refused", "refused")},
			[]string{"s.txtar:12,13 " + a + ": ipvs reachable | iptables reachable | nftables refused"},
		},
		"a probe that only one mode makes again does not shift the others": {
			[]lab.Check{at("13", a, "reachable", "reachable"), at("22", a, "reachable", "reachable")},
			nil,
			[]lab.Check{at("12", a, "refused", "refused"), at("20", a, "refused", "refused"), at("22", a, "reachable", "reachable")},
			[]string{"s.txtar:12,13 " + a + ": ipvs reachable | nftables refused"},
		},
		"details do not count where all is as expected": {
			[]lab.Check{at("9", b, "reachable", "reachable by s1")}, []lab.Check{at("9", b, "reachable", "reachable by s2")}, []lab.Check{at("9", b, "reachable", "reachable by s1")},
			nil,
		},
		"nor does the mode itself": {
			[]lab.Check{at("9", "proxy-mode n1", "= ipvs", "ipvs")}, []lab.Check{at("9", "proxy-mode n1", "= iptables", "iptables")}, []lab.Check{at("9", "proxy-mode n1", "= nftables", "nftables")},
			nil,
		},
		"nor does on which endpoint connections fell": {
			[]lab.Check{at("9", "spread c1 svc/web 20", "failed=0", "s1 20")}, []lab.Check{at("9", "spread c1 svc/web 20", "failed=0", "s2 20")}, nil,
			nil,
		},
		"nor do numbers": {
			[]lab.Check{at("9", "ipsets", "some", "17 sets")}, []lab.Check{at("9", "ipsets", "some", "3 sets")}, nil,
			nil,
		},
		"the same expectation, another outcome": {
			[]lab.Check{at("9", b, "reachable|refused", "refused")}, []lab.Check{at("9", b, "reachable|refused", "reachable by s2")}, nil,
			[]string{"s.txtar:9 " + b + ": ipvs refused | iptables reachable by s2"},
		},
		"a deviation": {
			[]lab.Check{at("9", b, "reachable", "reachable")}, []lab.Check{deviating(at("9", b, "reachable", "timeout"))}, nil,
			[]string{"s.txtar:9 " + b + ": ipvs reachable | iptables timeout ✗"},
		},
		"the same at several places is said once, in the order of the lines": {
			[]lab.Check{at("9", a, "x", "x"), at("10", b, "x", "x"), at("101", a, "x", "x")}, nil, []lab.Check{at("9", a, "y", "y"), at("10", b, "y", "y"), at("101", a, "y", "y")},
			[]string{"s.txtar:9,101 " + a + ": ipvs x | nftables y", "s.txtar:10 " + b + ": ipvs x | nftables y"},
		},
		"one line that runs twice": {
			[]lab.Check{at("9", a, "x", "x"), at("9", a, "y", "y")}, nil, []lab.Check{at("9", a, "x", "x"), at("9", a, "z", "z")},
			[]string{"s.txtar:9 " + a + ": ipvs y | nftables z"},
		},
		"what one mode alone observes is no difference": {
			[]lab.Check{at("9", "virtual servers", "some", "some")}, nil, nil,
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := new(Run)
			for mode, checks := range map[lab.Mode][]lab.Check{lab.IPVS: tt.ipvs, lab.IPTables: tt.iptables, lab.NFTables: tt.nftables} {
				run.Cells = append(run.Cells, result(cell("s", mode, onHost, "1.37.2"), lab.Pass, 1, checks...))
			}
			short := shortLabelsOf(run)
			var got []string
			for _, d := range Differences(run) {
				got = append(got, d.Where()+" "+d.What+": "+strings.Join(d.outcomes(short), " | "))
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestDifferencesIgnoreErrors(t *testing.T) {
	run := &Run{Cells: []lab.Result{
		result(cell("s", lab.IPVS, onHost, "1.37.2"), lab.Pass, 1, check("s.txtar:9", "", "p", "x", "x")),
		because(result(cell("s", lab.NFTables, onHost, "1.37.2"), lab.Error, 1, check("s.txtar:9", "", "p", "y", "y")), "control"),
	}}
	assert.Empty(t, Differences(run))
}

func TestCaveat(t *testing.T) {
	of := func(m lab.Mode, k lab.Kernel, v string) Column { return columnOf(cell("s", m, k, v)) }
	assert.Empty(t, Caveat([]Column{of(lab.IPVS, onDebian12, "1"), of(lab.NFTables, onDebian12, "1")}))
	assert.Empty(t, Caveat([]Column{
		of(lab.IPVS, onDebian12, "1"), of(lab.IPVS, onDebian11, "1"), of(lab.NFTables, onDebian11, "1"), of(lab.NFTables, onDebian12, "1"),
	}))
	assert.Contains(t, Caveat([]Column{of(lab.IPVS, onDebian12, "1"), of(lab.NFTables, onHost, "1")}), "same kernel:")
	assert.Contains(t, Caveat([]Column{of(lab.IPVS, onDebian12, "1"), of(lab.NFTables, onHost, "2")}), "same kernel and kube-proxy version:")
}

// One step probes from several clients, in both families: what came out alike is one line for a person.
func TestJoinAlike(t *testing.T) {
	ipvs, nftables := Column{Mode: lab.IPVS}, Column{Mode: lab.NFTables}
	difference := func(step, what, observed string) Difference {
		return Difference{Scenario: "ports", Steps: []string{step}, What: what, Outcomes: []Outcome{{Column: ipvs, Observed: "refused"}, {Column: nftables, Observed: observed}}}
	}
	joined := joinAlike([]Difference{
		difference("ports.txtar:4", "probe c1 tcp svc/web:99", "timeout"),
		difference("ports.txtar:4", "probe ext tcp svc/web:99", "timeout"),
		difference("ports.txtar:4", "probe n1 tcp svc/web:99", "reachable"),
		difference("ports.txtar:9", "probe c1 tcp svc/web:99", "timeout"),
		difference("ports.txtar:4", "probe ext udp svc/web:99", "timeout"),
	})
	var lines []string
	for _, d := range joined {
		lines = append(lines, d.Where()+" "+d.What+d.note())
	}
	assert.Equal(t, []string{
		"ports.txtar:4 probe c1 tcp svc/web:99 and 2 more",
		"ports.txtar:4 probe n1 tcp svc/web:99",
		"ports.txtar:9 probe c1 tcp svc/web:99",
	}, lines)
}
