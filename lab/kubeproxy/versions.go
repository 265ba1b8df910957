package kubeproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/semver"
)

// oldestMinor is the first minor version whose configuration and metrics this package knows: 1.33 made nftables mode GA
// and gave the metrics their ip_family label (KEP 3866, kubernetes/kubernetes#129173).
const oldestMinor = 33

// Known lists one version of each supported minor, ascending: those that the published results are about.
func Known() []string { return []string{"1.33.13", "1.34.4", "1.35.4", "1.36.3", "1.37.2"} }

var versionSyntax = regexp.MustCompile(`^v?(1)\.(\d+)\.(\d+)(-[0-9A-Za-z.-]+)?$`)

// ParseVersion checks a version and returns it without the leading v: "1.37.2", "1.38.0-beta.0".
func ParseVersion(s string) (string, error) {
	m := versionSyntax.FindStringSubmatch(s)
	if m == nil || !semver.IsValid("v"+strings.TrimPrefix(s, "v")) {
		return "", fmt.Errorf("kube-proxy version %q: expected 1.MINOR.PATCH such as %s, or the path of a kube-proxy", s, Known()[len(Known())-1])
	}
	if minorOf(s) < oldestMinor {
		return "", fmt.Errorf("kube-proxy version %q: expected 1.%d or later", s, oldestMinor)
	}
	return strings.TrimPrefix(s, "v"), nil
}

// minorOf is the MINOR of 1.MINOR.PATCH, 0 if version is none.
func minorOf(version string) int {
	if m := versionSyntax.FindStringSubmatch(version); m != nil {
		n, _ := strconv.Atoi(m[2])
		return n
	}
	return 0
}

// Versions lists the versions that can be obtained, ascending, as far as they can be learnt: those cached, those that
// the Go module proxy lists, and the newest patch of each minor that the release server names. The error says why none
// could be learnt.
func (s *Source) Versions(ctx context.Context) ([]string, error) {
	found := map[string]bool{}
	for _, b := range Cached(s.Cache) {
		found[b.Version] = true
	}
	modules, moduleErr := moduleVersions(ctx)
	stable, stableErr := s.stableVersions(ctx)
	for _, v := range slices.Concat(modules, stable) {
		if v, err := ParseVersion(v); err == nil {
			found[v] = true
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("which versions of kube-proxy exist could not be learnt: %w", errors.Join(moduleErr, stableErr))
	}
	versions := make([]string, 0, len(found))
	for v := range found {
		versions = append(versions, v)
	}
	sortVersions(versions)
	return versions, nil
}

// stableVersions asks the release server for the newest patch of each minor.
func (s *Source) stableVersions(ctx context.Context) ([]string, error) {
	var versions []string
	for minor := oldestMinor; ; minor++ {
		v, err := s.read(ctx, fmt.Sprintf("stable-1.%d.txt", minor))
		if status := (*statusError)(nil); errors.As(err, &status) && status.code == http.StatusNotFound {
			return versions, nil
		}
		if err != nil {
			return versions, err
		}
		versions = append(versions, strings.TrimSpace(v))
	}
}

// read fetches a small text from the release server.
func (s *Source) read(ctx context.Context, name string) (string, error) {
	body, err := s.get(ctx, name)
	if err != nil {
		return "", err
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, 4096))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return string(b), nil
}

func sortVersions(versions []string) {
	slices.SortFunc(versions, func(a, b string) int { return semver.Compare("v"+a, "v"+b) })
}

// nearest sorts versions by how near they are to v: same minor first, then by minor, then by patch.
func nearest(v string, versions []string) []string {
	distance := func(w string) int {
		return 1000*abs(minorOf(v)-minorOf(w)) + abs(patchOf(v)-patchOf(w))
	}
	sorted := slices.Clone(versions)
	slices.SortStableFunc(sorted, func(a, b string) int { return cmp.Compare(distance(a), distance(b)) })
	return sorted
}

func patchOf(version string) int {
	if m := versionSyntax.FindStringSubmatch(version); m != nil {
		n, _ := strconv.Atoi(m[3])
		return n
	}
	return 0
}

func abs(n int) int { return max(n, -n) }

// UnknownVersionError says that a version of kube-proxy does not exist, or cannot be had.
type UnknownVersionError struct {
	Version string
	Nearest []string // versions that exist, nearest first; empty if they could not be learnt
	Err     error    // what the places where it was sought said
}

func (e *UnknownVersionError) Error() string {
	if len(e.Nearest) == 0 {
		return fmt.Sprintf("kube-proxy %s was not found: %v", e.Version, e.Err)
	}
	return fmt.Sprintf("kube-proxy %s was not found; versions that exist, nearest first: %s (%v)", e.Version, strings.Join(e.Nearest, ", "), e.Err)
}

func (e *UnknownVersionError) Unwrap() error { return e.Err }
