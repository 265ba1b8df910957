package report

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"kplab/lab"
	"kplab/results"
)

// switchSource is a run of two changes of mode, of unit-test values.
func switchSource(t *testing.T) Source {
	t.Helper()
	s := every(t)
	ipsets := 17
	for i, by := range []string{"restart", "crash"} {
		c := s.Run.Cells[2]
		c.Scenario, c.Evidence = "mode-switch.ipvs."+by, nil
		c.Parameters = map[string]string{"from": "ipvs", "by": by}
		c.Gaps = []lab.Gap{{Name: "out", During: "the switch " + hostile, Traffic: "ext n1:nodeport/web", Attempts: 65, Failed: 25 * i, Ms: 640 * float64(i), Outcomes: map[string]int{"refused": 25 * i, "reachable": 65 - 25*i}}}
		c.Survivors = []lab.Survivors{{Name: "kept", Connections: 12, Outcomes: map[string]int{"alive": 6, "reset": 6}}}
		c.States = []lab.State{{Node: "n1", Foreign: []lab.Foreign{{Kind: "ipset", Name: hostile}}, Leftovers: &lab.Leftovers{Beyond: "n2", Holds: lab.Holdings{IPSets: &ipsets}}}}
		s.Run.Cells = append(s.Run.Cells, c)
	}
	return s
}

func TestSwitches(t *testing.T) {
	dir := written(t, options(t), switchSource(t))
	page := read(t, dir, "index.html")
	for _, want := range []string{
		`<a href="#switches">Changes of mode</a>`, results.SwitchTitle, `<th scope="row">from ipvs by crash</th>`, `<th scope="col">to nftables</th>`,
		"out: 640 ms, 25 of 65 (25 refused)", "kept: 6 of 12 alive, 6 reset", "left over: 17 ipsets", "foreign state lost: ipset",
	} {
		assert.Contains(t, page, want)
	}
	assert.NotContains(t, page, "<script>alert")
	assert.NotContains(t, page, `id="traffic"`, "what the grid shows is not shown again")
	doc, err := html.Parse(strings.NewReader(page))
	require.NoError(t, err)
	ids, links := map[string]bool{}, []string{}
	for n := range doc.Descendants() {
		for _, a := range n.Attr {
			switch {
			case a.Key == "id":
				ids[a.Val] = true
			case a.Key == "href" && strings.HasPrefix(a.Val, "#"):
				links = append(links, a.Val[1:])
			}
		}
	}
	for _, to := range links {
		assert.True(t, ids[to], "#%s leads nowhere", to)
	}
	assert.Contains(t, read(t, dir, markdownFile), "from ipvs by restart")
	assert.NotContains(t, read(t, written(t, options(t), every(t)), "index.html"), `id="switches"`)
}
