package kubeproxy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// A cache has a folder VERSION-linux-ARCH for each binary, with the files kube-proxy and origin in it. The folder is put
// there whole, by a rename. Beside it are VERSION-linux-ARCH.lock, which whoever obtains that binary holds, and the
// folders .scratch-VERSION-linux-ARCH-* of those at work.
const (
	binaryFile = "kube-proxy"
	originFile = "origin"
)

func (s *Source) entry(version string) string { return version + "-linux-" + s.arch() }

func (s *Source) scratchPrefix(version string) string { return ".scratch-" + s.entry(version) + "-" }

// Cached lists what a cache folder has for this machine's architecture, by ascending version.
func Cached(cache string) []Binary {
	suffix := "-linux-" + runtime.GOARCH
	folders, _ := filepath.Glob(filepath.Join(cache, "*"+suffix))
	s := &Source{Cache: cache}
	var versions []string
	for _, f := range folders {
		version := strings.TrimSuffix(filepath.Base(f), suffix)
		if _, ok := s.cached(version); ok {
			versions = append(versions, version)
		}
	}
	sortVersions(versions)
	binaries := make([]Binary, len(versions))
	for i, v := range versions {
		binaries[i], _ = s.cached(v)
	}
	return binaries
}

func (s *Source) cached(version string) (Binary, bool) {
	if _, err := ParseVersion(version); err != nil {
		return Binary{}, false
	}
	folder, err := filepath.Abs(filepath.Join(s.Cache, s.entry(version)))
	if err != nil {
		return Binary{}, false
	}
	b := Binary{Version: version, Path: filepath.Join(folder, binaryFile)}
	info, err := os.Stat(b.Path)
	if err != nil || !info.Mode().IsRegular() {
		return Binary{}, false
	}
	origin, _ := os.ReadFile(filepath.Join(folder, originFile))
	b.Origin = strings.TrimSpace(string(origin))
	return b, true
}

// keep checks the binary in scratch and moves it into the cache.
func (s *Source) keep(ctx context.Context, version, scratch, origin string) (Binary, error) {
	staged := filepath.Join(scratch, "entry")
	if err := os.Mkdir(staged, 0o755); err != nil {
		return Binary{}, err
	}
	binary := filepath.Join(staged, binaryFile)
	if err := os.Rename(filepath.Join(scratch, binaryFile), binary); err != nil {
		return Binary{}, err
	}
	if err := os.Chmod(binary, 0o755); err != nil {
		return Binary{}, err
	}
	if s.arch() == runtime.GOARCH {
		said, err := versionOf(ctx, binary)
		if err != nil {
			return Binary{}, fmt.Errorf("what came from %s is no kube-proxy: %w", origin, err)
		}
		if said != version {
			return Binary{}, fmt.Errorf("what came from %s says it is kube-proxy %s, not %s", origin, said, version)
		}
	}
	if err := os.WriteFile(filepath.Join(staged, originFile), []byte(origin+"\n"), 0o644); err != nil {
		return Binary{}, err
	}
	target := filepath.Join(s.Cache, s.entry(version))
	if err := os.RemoveAll(target); err != nil { // an entry without a binary
		return Binary{}, err
	}
	if err := os.Rename(staged, target); err != nil {
		return Binary{}, err
	}
	b, ok := s.cached(version)
	if !ok {
		return Binary{}, fmt.Errorf("kube-proxy %s vanished from the cache folder %s", version, s.Cache)
	}
	return b, nil
}

// sweep removes what attempts that were killed have left. The caller holds the version's lock.
func (s *Source) sweep(version string) {
	left, _ := filepath.Glob(filepath.Join(s.Cache, s.scratchPrefix(version)+"*"))
	for _, f := range left {
		os.RemoveAll(f)
	}
}

// Remove removes a version from the cache. The error is fs.ErrNotExist if it is not there.
func (s *Source) Remove(ctx context.Context, version string) error {
	version, err := ParseVersion(version)
	if err != nil {
		return err
	}
	if _, ok := s.cached(version); !ok {
		return fmt.Errorf("kube-proxy %s is not in the cache folder %s: %w", version, s.Cache, os.ErrNotExist)
	}
	unlock, err := s.lock(ctx, version, s.steps(version))
	if err != nil {
		return explain(err, s.Cache)
	}
	defer unlock()
	return explain(os.RemoveAll(filepath.Join(s.Cache, s.entry(version))), s.Cache)
}

// lock waits for the version's lock, which is between processes as well as goroutines: each call opens the file anew.
func (s *Source) lock(ctx context.Context, version string, say progress) (unlock func(), err error) {
	if err := os.MkdirAll(s.Cache, 0o755); err != nil {
		return nil, err
	}
	l := flock.New(filepath.Join(s.Cache, s.entry(version)+".lock"))
	locked, err := l.TryLock()
	if err == nil && !locked {
		say("waiting for another one that is at work on it")
		_, err = l.TryLockContext(ctx, 200*time.Millisecond)
	}
	if err != nil {
		return nil, fmt.Errorf("wait for %s: %w", l.Path(), err)
	}
	return func() { _ = l.Close() }, nil
}
