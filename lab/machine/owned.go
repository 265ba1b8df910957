package machine

import (
	"os/exec"
	"runtime"
	"syscall"
)

// startOwned starts a command that the kernel kills when this process ends, however it does. The starting goroutine stays on its OS
// thread until the command is gone: the parent-death signal is sent when that thread, not the process, ends. wait returns when the
// command is gone and its output is read.
func startOwned(cmd *exec.Cmd) (kill func(), wait func() error, err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr.Setpgid = true // an interrupt from the terminal is the parent's to handle
	started := make(chan error)
	ended := make(chan struct{})
	var exit error
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			exit = cmd.Wait()
			close(ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, nil, err
	}
	return func() { _ = cmd.Process.Kill() }, func() error { <-ended; return exit }, nil
}
