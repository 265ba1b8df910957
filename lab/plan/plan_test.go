package plan

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
	"kplab/lab/script"
)

func parse(t *testing.T, name, header string) *script.Script {
	t.Helper()
	s, err := script.Parse(name+".txtar", "# It.\n"+header+"\nprobe c1 tcp s1:80\nexpect reachable\n")
	require.NoError(t, err)
	return s
}

func TestMakePlacesCells(t *testing.T) {
	monolith := lab.Machine{Release: "6.18.44", Features: map[string]bool{"ip_vs": false}}
	scripts := []*script.Script{
		parse(t, "plain", ""),
		parse(t, "leftovers", "requires feature:ip_vs 'why'"),
		parse(t, "newer", "requires kube-proxy:>=1.38 'why'"),
	}
	groups := Make(Default(), scripts, monolith)
	require.Len(t, groups, 2)
	assert.Equal(t, Host, groups[0].Kernel)
	assert.Equal(t, VMKernel, groups[1].Kernel)
	assert.Equal(t, []string{"plain/iptables", "plain/nftables", "newer/iptables", "newer/nftables"}, names(groups[0]),
		"a version that no kernel gives does not move a cell")
	assert.Equal(t, []string{"plain/ipvs", "leftovers/ipvs", "leftovers/iptables", "leftovers/nftables", "newer/ipvs"}, names(groups[1]))

	full := lab.Machine{Release: "6.1.0", Features: map[string]bool{"ip_vs": true}}
	groups = Make(Default(), scripts, full)
	require.Len(t, groups, 1)
	assert.Len(t, groups[0].Cells, 9)

	m := Default()
	m.Kernels = []string{Auto, "debian-12", "debian-11"}
	groups = Make(m, scripts, monolith)
	require.Len(t, groups, 3)
	assert.Len(t, groups[1].Cells, 9, "what auto and debian-12 both ask for runs once")
}

func TestMakeSaysParameters(t *testing.T) {
	m := Default()
	m.Modes, m.Kernels = []lab.Mode{lab.IPTables}, []string{Host}
	scripts, err := script.Instances("switch.txtar", "# A switch.\nparameter from ipvs nftables\n")
	require.NoError(t, err)
	groups := Make(m, append(scripts, parse(t, "plain", "")), lab.Machine{})
	require.Len(t, groups, 1)
	cells := groups[0].Cells
	require.Len(t, cells, 3)
	assert.Equal(t, map[string]string{"from": "ipvs"}, cells[0].Parameters)
	assert.Equal(t, map[string]string{"from": "nftables"}, cells[1].Parameters)
	assert.Nil(t, cells[2].Parameters)
}

func TestMakeRepeats(t *testing.T) {
	m := Default()
	m.Modes, m.Kernels, m.Repeat = []lab.Mode{lab.IPTables, lab.NFTables}, []string{Host}, 3
	groups := Make(m, []*script.Script{parse(t, "plain", "")}, lab.Machine{})
	require.Len(t, groups, 1)
	ids := map[string]bool{}
	var order []int
	for _, c := range groups[0].Cells {
		ids[c.ID()] = true
		order = append(order, c.Repeat)
	}
	assert.Equal(t, []int{1, 1, 2, 2, 3, 3}, order, "all once before any again")
	assert.Len(t, ids, 6, "every repeat has an id, and so a folder, of its own")

	m.Repeat = 1
	assert.Zero(t, Make(m, []*script.Script{parse(t, "plain", "")}, lab.Machine{})[0].Cells[0].Repeat, "once is no repeat")
	m.Repeat = 1000
	assert.ErrorContains(t, m.Validate(), "each cell 1000 times: expected 1 to 999")
}

func names(g Group) (names []string) {
	for _, c := range g.Cells {
		names = append(names, c.Scenario+"/"+string(c.Mode))
	}
	return names
}

func TestReadFile(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"unknown field", "modus: [ipvs]", `unknown field "modus"`},
		{"unknown mode", "modes: [ipv]", `unknown mode "ipv": did you mean "ipvs"?`},
		{"twice", "kernels: [host, host]", "host is named twice"},
		{"userland", "userlands: [debian-1]", `unknown userland "debian-1"`},
		{"type", "modes: 3", "cannot unmarshal"},
		{"not YAML", "modes: [", "matrix.yaml"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "matrix.yaml")
			require.NoError(t, os.WriteFile(file, []byte(tc.text), 0o600))
			_, err := ReadFile(file)
			require.ErrorContains(t, err, tc.want)
			assert.ErrorContains(t, err, file)
		})
	}
	file := filepath.Join(t.TempDir(), "matrix.yaml")
	require.NoError(t, os.WriteFile(file, []byte("modes: [nftables]\nkubeProxies: ['1.33.13']\n"), 0o600))
	m, err := ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, []lab.Mode{lab.NFTables}, m.Modes)
	assert.Equal(t, []string{Auto}, m.Kernels, "what the file leaves out is the default")
}
