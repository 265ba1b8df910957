package kindenv

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFromCRI(t *testing.T) {
	const log = "2026-11-30T23:20:48.1Z stderr F I1130 23:20:48.1 server.go:1] \"Version info\"\n" +
		"2026-11-30T23:20:48.2Z stderr P a line that is \n2026-11-30T23:20:48.2Z stderr F long\n2026-11-30T23:20:48.3Z stdout F \n"
	assert.Equal(t, "I1130 23:20:48.1 server.go:1] \"Version info\"\na line that is long\n\n", fromCRI(log))
	assert.Empty(t, fromCRI(""))
}
