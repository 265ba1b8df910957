package netns

import (
	"fmt"
	"os"
	"strings"
)

// setSysctl writes a sysctl of the host's network namespace; key is dotted.
func (h *host) setSysctl(key, value string) error {
	return h.Do(func() error {
		if err := os.WriteFile(sysctlPath(key), []byte(value), 0); err != nil {
			return fmt.Errorf("host %s: sysctl %s=%s: %w", h.spec.Name, key, value, err)
		}
		return nil
	})
}

func sysctlPath(key string) string { return "/proc/sys/" + strings.ReplaceAll(key, ".", "/") }
