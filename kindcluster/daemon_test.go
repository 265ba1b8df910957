package kindcluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestCapabilities(t *testing.T) {
	assert.Equal(t, "CAP_NET_ADMIN", capabilities[unix.CAP_NET_ADMIN])
	assert.Equal(t, "CAP_SYS_RESOURCE", capabilities[unix.CAP_SYS_RESOURCE])
	assert.Equal(t, "CAP_CHECKPOINT_RESTORE", capabilities[unix.CAP_CHECKPOINT_RESTORE])
	assert.Len(t, capabilities, unix.CAP_LAST_CAP+1)
	assert.True(t, hasCapability("CAP_OF_TOMORROW"), "one that is not known is left to runc")
}

func TestLimitCapabilities(t *testing.T) {
	var missing, present string
	for _, c := range capabilities {
		if hasCapability(c) {
			present = c
		} else {
			missing = c
		}
	}
	if missing == "" || present == "" {
		t.Skip("this process lacks no capability, or has none")
	}
	for name, text := range map[string]string{
		"config of a bundle": `{"process":{"capabilities":{"bounding":["` + present + `","` + missing + `"]},"rlimits":[{"type":"RLIMIT_NOFILE"}]},"linux":{"cpu":9223372036854775807}}`,
		"process of an exec": `{"capabilities":{"bounding":["` + present + `","` + missing + `"]},"cpu":9223372036854775807}`,
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.json")
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			require.NoError(t, limitCapabilities(file))
			got, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.True(t, json.Valid(got))
			assert.Contains(t, string(got), present)
			assert.NotContains(t, string(got), `"`+missing+`"`)
			assert.Contains(t, string(got), "9223372036854775807", "numbers stay as they are")
		})
	}
	assert.ErrorContains(t, limitCapabilities("/nonexistent/config.json"), "no such file")
}
