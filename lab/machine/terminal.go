package machine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// lendTerminal makes a command that is about to start the foreground of this process's terminal, so that a shell in it can use
// /dev/tty. takeBack makes this process the foreground again.
func lendTerminal(cmd *exec.Cmd) (takeBack func() error, err error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("a shell needs a terminal: %w", err)
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	fd := int(tty.Fd())
	cmd.SysProcAttr.Foreground = true
	cmd.SysProcAttr.Ctty = fd
	return func() error { return errors.Join(foreground(fd), tty.Close()) }, nil
}

// foreground makes this process's group the terminal's foreground. Done from the background it would stop the process with SIGTTOU, were
// that not blocked meanwhile.
func foreground(tty int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var block, before unix.Sigset_t
	const sigttou = unix.SIGTTOU - 1
	block.Val[sigttou/64] |= 1 << (sigttou % 64)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &block, &before); err != nil {
		return fmt.Errorf("take the terminal back: %w", err)
	}
	err := unix.IoctlSetPointerInt(tty, unix.TIOCSPGRP, unix.Getpgrp())
	if err != nil {
		err = fmt.Errorf("take the terminal back: %w", err)
	}
	return errors.Join(err, unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil))
}
