package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// MirrorVariable is the environment variable that names a Debian mirror (http://MIRROR/debian) for machines whose own apt has none.
const MirrorVariable = "KPLAB_DEBIAN_MIRROR"

// mirrors says where the machine itself gets Debian from.
type mirrors struct {
	main     string // URI of the archive proper
	security string // URI of the security archive; "" if the machine uses none
}

// findMirrors asks the machine's own apt, whatever its sources look like, unless [MirrorVariable] is set.
func findMirrors(ctx context.Context) (mirrors, error) {
	if uri := os.Getenv(MirrorVariable); uri != "" {
		return parseMirrors(uri + " Debian"), nil
	}
	out, err := command(ctx, "", nil, "apt-get", "indextargets", "--format", "$(REPO_URI) $(LABEL)", "Created-By: Packages")
	if err != nil {
		return mirrors{}, fmt.Errorf("ask apt for the machine's mirror: %w", err)
	}
	m := parseMirrors(out)
	if m.main == "" {
		return mirrors{}, errors.New("this machine's apt has no mirror of Debian: set " + MirrorVariable + " to the URI of one, ending in /debian")
	}
	return m, nil
}

// parseMirrors reads lines of a repository's URI and its label, which is missing before the first apt-get update.
func parseMirrors(targets string) mirrors {
	var m mirrors
	for line := range strings.Lines(targets) {
		uri, label, _ := strings.Cut(strings.TrimSpace(line), " ")
		path := strings.TrimSuffix(uri, "/")
		labelled := label != "" && !strings.HasPrefix(label, "$(")
		switch {
		case label == "Debian-Security", !labelled && strings.HasSuffix(path, "/debian-security"):
			if m.security == "" {
				m.security = uri
			}
		case label == "Debian", !labelled && strings.HasSuffix(path, "/debian"):
			if m.main == "" {
				m.main = uri
			}
		}
	}
	if m.security == "" {
		if base, ok := strings.CutSuffix(strings.TrimSuffix(m.main, "/"), "/debian"); ok {
			m.security = base + "/debian-security"
		}
	}
	return m
}
