package machine

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// ErrNoNamespaces says that this user may not make the namespaces that a [Sandbox] is made of. Errors that wrap it name the
// setting in the way.
var ErrNoNamespaces = errors.New("namespaces are not allowed here")

// unavailable explains why a sandbox could not be set up.
func (s *Sandbox) unavailable(cause error) error {
	if !s.userNamespace() {
		return fmt.Errorf("%w: %w: root needs the capabilities of a real root for them (in a container: run it privileged)", ErrNoNamespaces, cause)
	}
	return fmt.Errorf("%w for uid %d: %w: %s, or run as root", ErrNoNamespaces, os.Geteuid(), cause, userNamespaceRemedy(os.ReadFile))
}

// userNamespaceRemedy names the setting that keeps ordinary users from user namespaces.
func userNamespaceRemedy(readFile func(string) ([]byte, error)) string {
	for _, c := range []struct{ sysctl, forbids, allows string }{
		{"user.max_user_namespaces", "0", "10000"},
		{"kernel.unprivileged_userns_clone", "0", "1"},             // Debian and its children
		{"kernel.apparmor_restrict_unprivileged_userns", "1", "0"}, // Ubuntu from 23.10
	} {
		b, err := readFile("/proc/sys/" + strings.ReplaceAll(c.sysctl, ".", "/"))
		if err == nil && strings.TrimSpace(string(b)) == c.forbids {
			return fmt.Sprintf("%s is %s; set it with: sysctl -w %s=%s", c.sysctl, c.forbids, c.sysctl, c.allows)
		}
	}
	return "no sysctl forbids user namespaces, so a container runtime or a security module does"
}
