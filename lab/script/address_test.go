package script

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAddressesInManifests(t *testing.T) {
	vars := map[string]string{"s1": "10.244.1.10", "n1.mgmt/6": "fd00:20::11"}
	text, err := expandAddresses([]byte("a: [\"${s1}\", \"${n1.mgmt/6}\"]\nb: $s1 ${\n"), vars)
	require.NoError(t, err)
	assert.Equal(t, "a: [\"10.244.1.10\", \"fd00:20::11\"]\nb: $s1 ${\n", string(text), "only ${NAME} is a variable")

	_, err = expandAddresses([]byte("a: ${s1.mgmt}"), vars)
	assert.ErrorContains(t, err, "unknown variable ${s1.mgmt}")
}

func TestUnknownVariablesAreErrorsOfTheScript(t *testing.T) {
	_, err := Parse("case.txtar", "# It.\nexec ext ip route add ${s3}/32 via ${n1.mgmt}\n# ${nothing} in a comment\n"+service)
	assert.ErrorContains(t, err, "case.txtar:2: unknown variable ${s3}: did you mean")
	assert.NotContains(t, err.Error(), "n1.mgmt}")
	assert.NotContains(t, err.Error(), "nothing")

	_, err = Parse("case.txtar", "# It.\napply web.yaml\n-- web.yaml --\napiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {externalIPs: [\"${othre}\"], ports: [{port: 80}]}\n")
	assert.ErrorContains(t, err, `(web.yaml): unknown variable ${othre}: did you mean "other"?`)

	_, err = Parse("case.txtar", "# It.\nmetric n1 x\nsave before\nexpect > ${before}\n"+service)
	assert.NoError(t, err, "what was saved is a variable too")
}
