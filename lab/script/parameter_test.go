package script

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestInstances(t *testing.T) {
	all, err := Instances("switch.txtar", `# A switch.
parameter from ipvs nftables
parameter by restart crash
[from:ipvs] [!by:crash] exec n1 echo ${from} ${by}
`)
	require.NoError(t, err)
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
		assert.Equal(t, "switch.txtar", s.File)
	}
	assert.Equal(t, []string{"switch.ipvs.restart", "switch.ipvs.crash", "switch.nftables.restart", "switch.nftables.crash"}, names)
	for i, want := range []bool{true, false, false, false} {
		sess := &session{script: all[i]}
		holds, err := sess.all([]string{"from:ipvs", "!by:crash"})
		require.NoError(t, err)
		assert.Equal(t, want, holds, names[i])
	}

	all, err = Instances("plain.txtar", "# Plain.\n")
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, "plain", all[0].Name)
}

func TestParameterErrors(t *testing.T) {
	for text, want := range map[string]string{
		"parameter from":                                  "x.txtar:2: parameter: expected a name and values",
		"parameter from IPVS":                             "x.txtar:2: parameter: expected a name and values",
		"[mode:ipvs] parameter from ipvs":                 "x.txtar:2: parameter: expected a name and values",
		"parameter mode ipvs":                             `x.txtar:2: parameter: "mode" is a condition already`,
		"parameter from ipvs\n[from:ipv] exec n1 true":    `x.txtar:3: condition [from:ipv]: unknown value "ipv": did you mean "ipvs"?`,
		"parameter from ipvs\nexec n1 echo ${form}":       "x.txtar:3: unknown variable ${form}",
		"requires substrate:kinds 'there is no such one'": "x.txtar:2: requires",
	} {
		_, err := Instances("x.txtar", "# X.\n"+text+"\n")
		assert.ErrorContains(t, err, want, text)
	}
}
