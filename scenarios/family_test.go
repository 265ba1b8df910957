package scenarios

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every claim of the catalogue is of a family that has a name.
func TestFamilies(t *testing.T) {
	claims, err := Claims()
	require.NoError(t, err)
	for _, c := range claims {
		f := FamilyOf(c.ID)
		assert.NotEqual(t, f.Prefix, f.Name, "the family of %s has no name", c.ID)
	}
	assert.Equal(t, "X", FamilyOf("X7").Name)
	assert.Equal(t, "bug reports", FamilyOf("kk139515").Name)
}
