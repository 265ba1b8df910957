package machine

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// sandboxInit is pid 1 of a sandbox and returns its exit status.
func sandboxInit() int {
	if err := setUpSandbox(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitSetUp
	}
	agent, err := startAgent(os.Stdin, os.NewFile(eventsFD, "events"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitSetUp
	}
	return reap(agent)
}

// namespaceTrial is pid 1 of a sandbox without an agent.
func namespaceTrial() int {
	if err := setUpSandbox(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitSetUp
	}
	return 0
}

func setUpSandbox() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Sethostname([]byte("kplab")); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	return nil
}

// startAgent starts this binary as the agent and gives it both ways; this process keeps neither open.
func startAgent(in, events *os.File) (pid int, err error) {
	p, err := os.StartProcess("/proc/self/exe", []string{agentArg}, &os.ProcAttr{
		Env:   os.Environ(),
		Files: []*os.File{in, os.Stdout, os.Stderr, events},
	})
	if err != nil {
		return 0, fmt.Errorf("start the agent: %w", err)
	}
	_ = in.Close()
	_ = events.Close()
	pid = p.Pid
	return pid, p.Release()
}

// reap waits for every child and orphan until the agent ends, and returns the agent's status as a shell would.
func reap(agent int) int {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			fmt.Fprintln(os.Stderr, "wait for the agent:", err)
			return exitSetUp
		case pid == agent && status.Signaled():
			fmt.Fprintf(os.Stderr, "the agent was ended by signal %d (%v)\n", status.Signal(), status.Signal())
			return 128 + int(status.Signal())
		case pid == agent && status.Exited():
			return status.ExitStatus()
		}
	}
}
