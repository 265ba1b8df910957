// Package thread keeps OS threads in namespaces of their own: Linux gives each thread its own network and mount namespace, and Go
// gives no thread of its own to anybody.
package thread

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// The main goroutine keeps the main thread for good, so that no namespace thread can be the main thread: that one never
// ends, and /proc/self means its namespaces.
func init() { runtime.LockOSThread() }

// ErrClosed is what a closed thread answers.
var ErrClosed = errors.New("the namespace is closed")

// Thread is an OS thread in namespaces of its own. It runs one function at a time and is never returned to the Go runtime:
// when it is closed it ends, and its new namespaces with it.
type Thread struct {
	calls chan call
	stop  chan struct{}
	gone  chan struct{}
}

type call struct {
	fn  func() error
	err chan<- error
}

// New starts a thread in new namespaces, as unshare(2) flags say.
func New(flags int) (*Thread, error) {
	return start(func() error {
		if err := unix.Unshare(flags); err != nil {
			return fmt.Errorf("unshare(%#x): %w", flags, err)
		}
		return nil
	})
}

// Join starts a thread in the network namespace that a file stands for (/proc/PID/ns/net, or where one is mounted).
// The caller needs CAP_SYS_ADMIN.
func Join(path string) (*Thread, error) {
	return start(func() error {
		fd, err := open(path)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return enter(fd, path, unix.CLONE_NEWNET)
	})
}

// JoinWithMounts starts a thread in a network and a mount namespace. A program that it starts has the files of the latter.
func JoinWithMounts(network, mounts string) (*Thread, error) {
	return start(func() error {
		inNetwork, err := open(network)
		if err != nil {
			return err
		}
		defer unix.Close(inNetwork)
		inMounts, err := open(mounts)
		if err != nil {
			return err
		}
		defer unix.Close(inMounts)
		// Threads share their root and working directory, and whoever shares them cannot leave.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unshare the root directory: %w", err)
		}
		return errors.Join(enter(inNetwork, network, unix.CLONE_NEWNET), enter(inMounts, mounts, unix.CLONE_NEWNS))
	})
}

func open(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open namespace %s: %w", path, err)
	}
	return fd, nil
}

func enter(fd int, path string, kind int) error {
	if err := unix.Setns(fd, kind); err != nil {
		return fmt.Errorf("setns %s: %w", path, err)
	}
	return nil
}

func start(begin func() error) (*Thread, error) {
	t := &Thread{calls: make(chan call), stop: make(chan struct{}), gone: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(t.gone)
		runtime.LockOSThread()
		err := begin()
		started <- err
		if err != nil {
			return
		}
		for {
			select {
			case c := <-t.calls:
				c.err <- guard(c.fn)
			case <-t.stop:
				return
			}
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return t, nil
}

// guard turns a panic into an error: it must not take the other cells down.
func guard(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return fn()
}

// Do runs fn on the thread and returns its error; a panic is one too.
func (t *Thread) Do(fn func() error) error {
	err := make(chan error, 1)
	select {
	case t.calls <- call{fn, err}:
		return <-err
	case <-t.gone:
		return ErrClosed
	}
}

// Close ends the thread once the function that it runs has returned. Closing twice is closing once.
func (t *Thread) Close() {
	select {
	case <-t.stop:
	default:
		close(t.stop)
	}
	<-t.gone
}
