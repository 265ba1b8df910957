package kubeproxy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Binary is a kube-proxy executable for Linux.
type Binary struct {
	Version string // as it says itself, without v: "1.37.2"
	Path    string // absolute
	Origin  string // where it came from: a URL, "k8s.io/kubernetes@v1.37.2 built by go1.26.8" or "given"
}

// Source obtains kube-proxies. Its methods may be called from any goroutine, and several processes may share a cache.
type Source struct {
	// Cache is the folder that keeps what was obtained. It is made when needed.
	Cache string
	// Arch is the GOARCH of the binaries. Default this machine's.
	Arch string
	// Release is the base URL of the release server. Default https://dl.k8s.io/release.
	Release string
	// Progress gets a line for each step of what takes long, with the seconds since Obtain began. Default none.
	Progress func(line string)
}

// errUnavailable says that a place does not have a version, so that the next one is asked.
var errUnavailable = errors.New("not available")

// Obtain returns a version of kube-proxy. version is "1.37.2" or "v1.37.2", or the path of an executable, which is asked
// for its version. A version comes from the cache, or else from the release server (its SHA-256 is checked), or else it
// is built from the Go module k8s.io/kubernetes, which needs the go command and takes minutes. The error is an
// *UnknownVersionError if no place has it.
func (s *Source) Obtain(ctx context.Context, version string) (Binary, error) {
	if strings.ContainsRune(version, filepath.Separator) {
		return given(ctx, version)
	}
	parsed, err := ParseVersion(version)
	if err != nil {
		if _, statErr := os.Stat(version); statErr == nil {
			return given(ctx, version)
		}
		return Binary{}, err
	}
	if b, ok := s.cached(parsed); ok {
		return b, nil
	}
	b, err := s.obtain(ctx, parsed, s.steps(parsed))
	return b, explain(err, s.Cache)
}

// progress tells about a step of obtaining a version.
type progress func(format string, args ...any)

// obtain fills the cache while it holds the version's lock.
func (s *Source) obtain(ctx context.Context, version string, say progress) (Binary, error) {
	unlock, err := s.lock(ctx, version, say)
	if err != nil {
		return Binary{}, err
	}
	defer unlock()
	if b, ok := s.cached(version); ok { // by whoever held the lock before
		return b, nil
	}
	s.sweep(version)
	scratch, err := os.MkdirTemp(s.Cache, s.scratchPrefix(version))
	if err != nil {
		return Binary{}, err
	}
	defer os.RemoveAll(scratch)

	var tried []error
	places := []func(ctx context.Context, version, scratch string, say progress) (origin string, err error){s.download, s.build}
	for _, fetch := range places {
		origin, err := fetch(ctx, version, scratch, say)
		switch {
		case errors.Is(err, errUnavailable):
			say("%v", err)
			tried = append(tried, err)
			continue
		case err != nil:
			return Binary{}, errors.Join(append(tried, err)...)
		}
		b, err := s.keep(ctx, version, scratch, origin)
		if err == nil {
			say("ready")
		}
		return b, err
	}
	unknown := &UnknownVersionError{Version: version, Err: errors.Join(tried...)}
	if versions, err := s.Versions(ctx); err == nil {
		unknown.Nearest = nearest(version, versions)
	}
	return Binary{}, unknown
}

func (s *Source) arch() string {
	if s.Arch != "" {
		return s.Arch
	}
	return runtime.GOARCH
}

// steps returns a function that tells Progress about a step.
func (s *Source) steps(version string) progress {
	if s.Progress == nil {
		return func(string, ...any) {}
	}
	begin := time.Now()
	var mu sync.Mutex
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		s.Progress(fmt.Sprintf("kube-proxy %s: %s (%.0f s)", version, fmt.Sprintf(format, args...), time.Since(begin).Seconds()))
	}
}

// given asks an executable which kube-proxy it is.
func given(ctx context.Context, path string) (Binary, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Binary{}, err
	}
	version, err := versionOf(ctx, path)
	if err != nil {
		return Binary{}, err
	}
	if minorOf(version) < oldestMinor {
		return Binary{}, fmt.Errorf("%s is kube-proxy %s: expected 1.%d or later", path, version, oldestMinor)
	}
	return Binary{Version: version, Path: path, Origin: "given"}, nil
}

// versionOf runs an executable with --version, which answers "Kubernetes v1.37.2".
func versionOf(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w: %s", path, err, lastLine(string(out)))
	}
	version, ok := strings.CutPrefix(strings.TrimSpace(string(out)), "Kubernetes v")
	if !ok || minorOf(version) == 0 {
		return "", fmt.Errorf("%s --version said %q: expected \"Kubernetes v1.MINOR.PATCH\", so this is not a kube-proxy", path, lastLine(string(out)))
	}
	return version, nil
}

// lastLine is the last line of a tool's output that is not empty.
func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
}

// explain adds what to do to errors that are the file system's.
func explain(err error, cache string) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("no space for kube-proxy: %w: free 100 MB in the cache folder %s and, for a build, some GB in the go command's caches, or choose another one", err, cache)
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("kube-proxy cannot be kept: %w: make the cache folder %s writable, or choose another one", err, cache)
	}
	return err
}
