package netns

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

var errThreadGone = errors.New("the namespace is closed")

// thread is an OS thread in namespaces of its own. It runs one function at a time and is never returned to the Go runtime:
// when it is closed it ends, and its namespaces with it.
type thread struct {
	calls chan call
	stop  chan struct{}
	gone  chan struct{}
}

type call struct {
	fn  func() error
	err chan<- error
}

// newThread starts a thread in new namespaces, as unshare(2) flags say.
func newThread(flags int) (*thread, error) {
	t := &thread{calls: make(chan call), stop: make(chan struct{}), gone: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(t.gone)
		runtime.LockOSThread()
		err := unix.Unshare(flags)
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
		return nil, fmt.Errorf("unshare(%#x): %w", flags, err)
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

func (t *thread) do(fn func() error) error {
	err := make(chan error, 1)
	select {
	case t.calls <- call{fn, err}:
		return <-err
	case <-t.gone:
		return errThreadGone
	}
}

func (t *thread) close() {
	select {
	case <-t.stop:
	default:
		close(t.stop)
	}
	<-t.gone
}
