package results

import (
	"runtime"
	"syscall"
	"testing"
)

// mountPrivately mounts a tmpfs on dir for the test's own thread, which dies with the test, and reports whether it may.
func mountPrivately(t *testing.T, dir, options string) bool {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the test's goroutine, and the namespace with it
	if syscall.Unshare(syscall.CLONE_NEWNS) != nil {
		return false
	}
	if syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "") != nil {
		return false
	}
	if syscall.Mount("tmpfs", dir, "tmpfs", 0, options) != nil {
		return false
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	return true
}
