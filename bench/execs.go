package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// counted are the tools that kube-proxy runs, as they are found in a userland; several names may be one file.
var counted = []string{"nft", "iptables", "iptables-restore", "iptables-save", "ip6tables", "ip6tables-restore", "ip6tables-save", "ipset", "conntrack", "modprobe"}

// execCounter counts how often the tools of a userland are executed. It watches their files with inotify: to execute a file is to open
// it. Other executions of the same files count too, such as those of another kplab on the same cached userland.
type execCounter struct {
	events *os.File
	done   sync.WaitGroup
	mu     sync.Mutex
	opened int
}

// countExecs begins to count. root is the userland's.
func countExecs(root string) (*execCounter, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("count executions: inotify: %w", err)
	}
	c := &execCounter{events: os.NewFile(uintptr(fd), "inotify")}
	watched := 0
	for _, tool := range counted {
		for _, dir := range []string{"usr/sbin", "usr/bin", "sbin", "bin"} {
			path, err := resolve(root, filepath.Join(dir, tool))
			if err != nil {
				continue
			}
			// To execute a file is to open and then to read it. The reading keeps two openings apart that the kernel would otherwise report
			// as one. A file of several names is watched once.
			if _, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN|unix.IN_ACCESS|unix.IN_CLOSE_NOWRITE); err == nil {
				watched++
			}
			break
		}
	}
	if watched == 0 {
		return nil, errors.Join(fmt.Errorf("count executions: userland %s has none of %v", root, counted), c.events.Close())
	}
	c.done.Go(c.read)
	return c, nil
}

// resolve follows symbolic links as they lead inside a root.
func resolve(root, name string) (string, error) {
	path := filepath.Join(root, name)
	for range 10 {
		info, err := os.Lstat(path)
		if err != nil {
			return "", err
		}
		if info.Mode()&os.ModeSymlink == 0 {
			return path, nil
		}
		target, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if filepath.IsAbs(target) {
			path = filepath.Join(root, target)
		} else {
			path = filepath.Join(filepath.Dir(path), target)
		}
	}
	return "", fmt.Errorf("%s: too many symbolic links", path)
}

func (c *execCounter) read() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := c.events.Read(buffer)
		if err != nil {
			return // closed
		}
		opened := 0
		for b := buffer[:n]; len(b) >= unix.SizeofInotifyEvent; {
			e := (*unix.InotifyEvent)(unsafe.Pointer(&b[0]))
			if e.Mask&unix.IN_OPEN != 0 {
				opened++
			}
			b = b[unix.SizeofInotifyEvent+int(e.Len):]
		}
		c.mu.Lock()
		c.opened += opened
		c.mu.Unlock()
	}
}

// count is how many executions there have been.
func (c *execCounter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened
}

func (c *execCounter) close() error {
	err := c.events.Close()
	c.done.Wait()
	return err
}
