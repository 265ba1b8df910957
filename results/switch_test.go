package results

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
)

// switchCell is a cell that changes n1's mode, with what traffic met: failed of 60 new connections from outside for ms milliseconds.
func switchCell(from lab.Mode, by string, to lab.Mode, k lab.Kernel, failed int, ms float64, after lab.State) lab.Result {
	r := result(cell("mode-switch."+string(from)+"."+by, to, k, "1.37.2"), lab.Pass, 2400)
	r.Parameters = map[string]string{"from": string(from), "by": by}
	out := func(during string, failed int, ms float64) lab.Gap {
		return lab.Gap{
			Step: "mode-switch.txtar:20", Name: "out", During: during, Traffic: "ext n1:nodeport/web", Attempts: 60, Failed: failed, Ms: ms, IntervalMs: 20,
			Outcomes: map[string]int{"reachable": 60 - failed, "refused": failed},
		}
	}
	tells := func(during, endpoint string) lab.Gap {
		return lab.Gap{
			Step: "mode-switch.txtar:26", Name: "tells", Kind: lab.UDPOneWay, During: during, Traffic: "c1 svc/web:53", Attempts: 90, Failed: failed, Ms: ms / 2, IntervalMs: 10,
			Outcomes: map[string]int{"reachable": 90 - failed, "lost": failed}, Endpoints: map[string]int{endpoint: 90 - failed},
		}
	}
	endpoint, alive := "s1", 12
	if failed > 0 {
		endpoint, alive = "s2", 9
	}
	r.Gaps = []lab.Gap{out(lab.BeforeAnyChange, 0, 0), tells(lab.BeforeAnyChange, "s1"), out("the switch", failed, ms), tells("the switch", endpoint)}
	r.Survivors = []lab.Survivors{{Step: "mode-switch.txtar:66", Name: "kept", Connections: 12, Outcomes: map[string]int{"alive": alive, "reset": 12 - alive}}}
	if alive == 12 {
		delete(r.Survivors[0].Outcomes, "reset")
	}
	after.Node, after.When, after.Step = "n1", "after the switch", "mode-switch.txtar:76"
	r.States = []lab.State{{Node: "n1", When: "before the switch", Step: "mode-switch.txtar:19"}, after}
	return r
}

func count(n int) *int { return &n }

// clean is a state with nothing left over and nothing lost.
func clean() lab.State {
	return lab.State{Leftovers: &lab.Leftovers{Beyond: "n2"}, Foreign: []lab.Foreign{{Kind: "ipset", Name: "FOREIGN", Kept: true}}}
}

// afterIPVS is what a start in another mode leaves of ipvs mode.
func afterIPVS() lab.State {
	return lab.State{
		Leftovers: &lab.Leftovers{
			Beyond: "n2", Holds: lab.Holdings{VirtualServers: count(24), IPSets: count(1), IPTables: map[string]lab.TableCount{"nat": {Chains: 1, Rules: 3}}},
			Sysctls: []lab.Sysctl{{Key: "net.ipv4.vs.conntrack", Value: "1", Other: "0"}, {Key: "net.ipv4.vs.new", Value: "1"}},
		},
		Foreign: []lab.Foreign{{Kind: "ipset", Name: "FOREIGN", Kept: true}, {Kind: "virtual-server", Name: "198.51.100.9:80"}},
	}
}

// switched is a run of changes of mode, not all of the grid.
func switched() *Run {
	errs := switchCell(lab.NFTables, "crash", lab.IPTables, onHost, 0, 0, clean())
	errs.Verdict, errs.Reason, errs.Gaps, errs.Survivors, errs.States = lab.Error, "not started: interrupted", nil, nil, nil
	down := switchCell(lab.NFTables, "restart", lab.IPTables, onHost, 0, 0, clean())
	down.Gaps[2].Open, down.Gaps[2].Failed, down.Gaps[2].Ms = true, 60, 1200
	down.Gaps[2].Outcomes = map[string]int{"refused": 60}
	return &Run{Schema: Schema, Started: start, Finished: start, Cells: []lab.Result{
		errs, down,
		switchCell(lab.IPTables, "restart", lab.NFTables, onHost, 32, 640.4, clean()),
		switchCell(lab.IPTables, "restart", lab.IPTables, onHost, 0, 0, clean()),
		switchCell(lab.IPVS, "restart", lab.NFTables, onDebian12, 25, 6156, afterIPVS()),
		switchCell(lab.IPVS, "cleanup", lab.NFTables, onDebian12, 25, 6156, clean()),
		result(cell("clusterip-basics", lab.NFTables, onHost, "1.37.2"), lab.Pass, 900),
	}}
}

func TestSwitchGrids(t *testing.T) {
	grids := SwitchGrids(switched())
	require.Len(t, grids, 1, "a scenario without the parameters has none")
	g := grids[0]
	assert.Equal(t, "mode-switch", g.Scenario)
	assert.Equal(t, []string{"to iptables", "to nftables (host 6.18.5)", "to nftables (debian-12 6.1.0-39-cloud-amd64 tcg)"}, g.Heads(), "kernels are never merged")
	var rows []string
	for _, r := range g.Rows {
		rows = append(rows, r.Name())
		require.Len(t, r.Cells, 3)
	}
	assert.Equal(t, []string{"from ipvs by restart", "from ipvs by cleanup", "from iptables by restart", "from nftables by crash", "from nftables by restart"}, rows, "ways are in the order of the run")
	assert.Nil(t, g.Rows[0].Cells[0], "what was not run is nothing")
	assert.Equal(t, []string{
		"out: ext n1:nodeport/web (new TCP connections)", "tells: c1 svc/web:53 (one-way UDP, as received)", "kept: TCP connections that were there before, idle, how many are alive",
	}, g.Legend)
	assert.Equal(t, "TCP connections that were there before, over which the endpoint sends", survivorKind(lab.Survivors{Traffic: lab.Push}))
	assert.Equal(t, "TCP connections that were there before, over which requests go", survivorKind(lab.Survivors{Traffic: lab.Requests}))
	assert.Empty(t, SwitchGrids(sample()))
	assert.Empty(t, Gaps(switched()), "what the grid shows is not shown again")
}

func TestSwitch(t *testing.T) {
	for _, tc := range []struct {
		name             string
		s                lab.Result
		figures, traffic []string
		failures         []string
		remains          []string
	}{
		{"nothing happens", switchCell(lab.IPTables, "restart", lab.IPTables, onHost, 0, 0, clean()),
			[]string{"0", "0", "12/12", "-"},
			[]string{"out: none of 60", "tells: none of 90", "kept: 12 of 12 alive"},
			nil,
			[]string{"left over: nothing", "foreign state kept: ipset FOREIGN"}},
		{"much does", switchCell(lab.IPVS, "restart", lab.NFTables, onHost, 25, 6156, afterIPVS()),
			[]string{"6156", "3078", "9/12", "-"},
			[]string{"out: 6156 ms, 25 of 60 (25 refused)", "tells: 3078 ms, 25 of 90 (25 lost), went to another endpoint", "kept: 9 of 12 alive, 3 reset"},
			[]string{"out: 25 of 60 (25 refused)", "tells: 25 of 90 (25 lost), went to another endpoint", "kept: 3 of 12 reset"},
			[]string{
				"left over: 24 virtual servers, 1 ipset, iptables nat: 1 chain and 3 rules, net.ipv4.vs.conntrack = 1 (else 0), net.ipv4.vs.new = 1 (else absent)",
				"foreign state kept: ipset FOREIGN", "foreign state lost: virtual-server 198.51.100.9:80",
			}},
		{"nobody looked", lab.Result{Cell: cell("x", lab.IPVS, onHost, "1")}, []string{"-", "-", "-", "-"}, nil, nil, nil},
		{"no yardstick", lab.Result{States: []lab.State{{Node: "n1"}}}, []string{"-", "-", "-", "-"}, nil, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := switchOf(&tc.s)
			for i, name := range []string{"out", "tells", "kept", "none such"} {
				assert.Equal(t, tc.figures[i], s.Figure(name), name)
			}
			assert.Equal(t, tc.traffic, s.Traffic())
			assert.Equal(t, tc.failures, s.Failures())
			assert.Equal(t, tc.remains, s.Remains())
		})
	}
}

func TestRemainders(t *testing.T) {
	var kept Remainder
	all := SwitchGrids(switched())[0].Remainders()
	for _, r := range all {
		if strings.HasPrefix(r.Text, "foreign state kept") {
			kept = r
		}
	}
	assert.Equal(t, []string{
		"from ipvs to nftables (debian-12 6.1.0-39-cloud-amd64 tcg)", "from iptables to iptables, nftables (host 6.18.5) by restart", "from nftables to iptables by restart",
	}, kept.Where, "ways are named where not all are meant")
	assert.True(t, strings.HasPrefix(all[len(all)-1].Text, "foreign state lost"), "what is lost comes last")
}

func TestSwitchGoldens(t *testing.T) {
	golden(t, "switch.txt", func(w io.Writer) error { return DifferencesText(w, switched(), TextOptions{Width: 110}) })
	golden(t, "switch.md", func(w io.Writer) error { return Markdown(w, switched()) })
}

func TestSwitchTextFits(t *testing.T) {
	for _, width := range []int{60, 80, 100, 110, 160} {
		var b bytes.Buffer
		require.NoError(t, DifferencesText(&b, switched(), TextOptions{Width: width}))
		for line := range strings.Lines(b.String()) {
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), width, line)
		}
	}
}
