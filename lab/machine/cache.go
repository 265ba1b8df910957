package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// Cache is where fetched kernels and userlands are kept, under one folder:
//
//	kernels/NAME/     vmlinuz, lib/modules/RELEASE, kernel.json
//	userlands/NAME/   a root file system
//	accel.json        which accelerator works here
//
// Several processes may share one; whatever is made appears whole or not at all.
type Cache struct {
	// Root is the folder; it need not exist.
	Root string
	// Progress is told what takes time, a line at a time, if set.
	Progress func(line string)
}

// DefaultCacheRoot is kplab's folder below the user's cache folder.
func DefaultCacheRoot() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder (set XDG_CACHE_HOME or HOME): %w", err)
	}
	return filepath.Join(dir, "kplab"), nil
}

func (c Cache) progress(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, args...))
	}
}

// entry returns the folder of a name, which may hold characters that folders should not.
func (c Cache) entry(kind, name string) string {
	return filepath.Join(c.Root, kind, strings.NewReplacer("/", "_", ":", "_").Replace(name))
}

// ensure returns dest after build has made it, unless it is there already. build works in a folder which becomes dest when it
// succeeds, with another to fetch to that goes in any case; leftovers of builds that were killed are removed.
func (c Cache) ensure(dest string, build func(dir, scratch string) error) (err error) {
	if _, err := os.Stat(dest); err == nil {
		return nil
	}
	parent := filepath.Dir(dest)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("make the cache: %w", err)
	}
	unlock, err := lock(filepath.Join(parent, "."+filepath.Base(dest)+".lock"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if _, err := os.Stat(dest); err == nil {
		return nil // another process made it meanwhile
	}
	dir := filepath.Join(parent, "."+filepath.Base(dest)+".part")
	scratch := filepath.Join(parent, "."+filepath.Base(dest)+".scratch")
	for _, d := range []string{dir, scratch} {
		if err := os.RemoveAll(d); err != nil {
			return fmt.Errorf("remove what a killed process left: %w", err)
		}
		if err := os.Mkdir(d, 0o755); err != nil {
			return fmt.Errorf("make the cache: %w", err)
		}
	}
	err = build(dir, scratch)
	if removeErr := os.RemoveAll(scratch); err != nil || removeErr != nil {
		return errors.Join(err, removeErr, os.RemoveAll(dir))
	}
	if err := os.Rename(dir, dest); err != nil {
		return fmt.Errorf("put in the cache: %w", err)
	}
	return nil
}

// lock takes an exclusive lock on a file, waiting for whoever has it.
func lock(path string) (unlock func() error, err error) {
	l := flock.New(path)
	if err := l.Lock(); err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return l.Close, nil
}

// treeSize is the size in bytes of the files below root.
func treeSize(root string) (size int64) {
	_ = filepath.WalkDir(root, func(_ string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if i, err := d.Info(); err == nil {
			size += i.Size()
		}
		return nil
	})
	return size
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

func seconds(since time.Time) string { return fmt.Sprintf("%.1f s", time.Since(since).Seconds()) }
