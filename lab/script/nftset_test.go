package script

import (
	"testing"

	"github.com/google/nftables"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests have a network namespace of their own: see TestMain.
func TestNewerSetIsASetLikeAnother(t *testing.T) {
	require.NoError(t, addNewerSet("another", "s"))
	conn, err := nftables.New()
	require.NoError(t, err)
	table, err := conn.ListTableOfFamily("another", nftables.TableFamilyIPv4)
	require.NoError(t, err)
	set, err := conn.GetSetByName(table, "s")
	require.NoError(t, err)
	assert.Equal(t, nftables.TypeIFName, set.KeyType)

	assert.Error(t, addNewerSet("a-table-name-that-is-longer-than-the-kernel-takes-"+string(make([]byte, 300)), "s"), "what the kernel refuses is an error")
	require.NoError(t, deleteTable("another"))
	assert.Error(t, deleteTable("another"), "it is gone")
}
