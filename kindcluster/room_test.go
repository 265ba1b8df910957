package kindcluster

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRoom(t *testing.T) {
	dir := t.TempDir()
	assert.NoError(t, room(dir, 1, "a byte"))
	err := room(dir, math.MaxUint64/2, "a universe")
	assert.ErrorContains(t, err, "a universe needs ")
	assert.ErrorContains(t, err, " free in "+dir+", and ")
	assert.ErrorContains(t, err, "kplab clean")
	assert.ErrorContains(t, room("/nowhere/at/all", 1, "x"), "free space of /nowhere/at/all")
}

func TestCapabilityHint(t *testing.T) {
	denied := errors.New("runc: unable to apply caps: operation not permitted")
	assert.Empty(t, (&Engine{host: "unix:///ours"}).capabilityHint(denied))
	assert.Empty(t, (&Engine{}).capabilityHint(errors.New("failed to pull image")))
	hint := (&Engine{}).capabilityHint(denied)
	if hasCapability("CAP_SYS_RESOURCE") {
		assert.NotContains(t, hint, "CAP_SYS_RESOURCE")
	} else {
		assert.Contains(t, hint, "lacks CAP_SYS_RESOURCE")
	}
}
