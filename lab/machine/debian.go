package machine

import (
	"fmt"
	"slices"
	"strings"
)

// debianRelease is a Debian release that kernels or userlands are named after.
type debianRelease struct {
	name     string // "debian-12"
	suite    string // "bookworm"
	series   string // of its kernel: "6.1"; other series in the suite are not the release's own
	userland bool   // whether its tools may be asked for
}

// releases lists what has a name of its own, oldest first. https://www.debian.org/releases/
func releases() []debianRelease {
	return []debianRelease{
		{name: "debian-11", suite: "bullseye", series: "5.10"},
		{name: "debian-12", suite: "bookworm", series: "6.1", userland: true},
		{name: "debian-13", suite: "trixie", series: "6.12", userland: true},
	}
}

// suites lists the suites that kernels may be asked from.
func suites() []string {
	var s []string
	for _, r := range releases() {
		s = append(s, r.suite)
	}
	return append(s, "bookworm-backports", "trixie-backports", "forky", "sid", "experimental")
}

// sources is a sources.list for a suite. Every line demands a signature of Debian's keys.
func sources(suite string, m mirrors) string {
	line := func(uri, suite string) string {
		return fmt.Sprintf("deb [signed-by=%s] %s %s main\n", keyring, uri, suite)
	}
	base := strings.TrimSuffix(suite, "-backports")
	var b strings.Builder
	b.WriteString(line(m.main, suite))
	if base != suite {
		b.WriteString(line(m.main, base))
	}
	released := slices.ContainsFunc(releases(), func(r debianRelease) bool { return r.suite == base })
	if released && m.security != "" {
		b.WriteString(line(m.security, base+"-security"))
	}
	return b.String()
}
