package machine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"kplab/lab"
)

// Sandbox runs a job on this kernel: the same binary re-executed in pid, mount, net, ipc, uts and cgroup namespaces of its own.
// Nothing is written to disk, and when the sandbox or its parent dies, however that happens, the kernel takes back every
// process, link, mount and rule.
//
// An ordinary user gets a user namespace too, in which they are root. Root gets none: in a user namespace nft and iptables
// may not enlarge their socket buffer beyond net.core.wmem_max (SO_SNDBUFFORCE asks for CAP_NET_ADMIN in the initial
// one), and a large ruleset fails with "Message too long", which no kube-proxy on a node would see.
type Sandbox struct {
	// Unprivileged asks for a user namespace even as root.
	Unprivileged bool
}

var _ lab.Runner = (*Sandbox)(nil)

// Run runs the job in a new sandbox. What the sandbox writes to its standard error comes as [lab.EventLog]. When ctx ends, the
// sandbox is killed and ctx's cause returned. A job with a shell makes the sandbox the foreground of this process's terminal.
func (s *Sandbox) Run(ctx context.Context, job lab.Job, emit func(lab.Event)) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	emit = serialise(emit)
	job.Parallel = cmp.Or(job.Parallel, lab.DefaultParallel)
	log := &tail{line: func(l string) { emit(logEvent("%s", l)) }}
	child, err := s.start(log, job.Shell != lab.ShellNever)
	if err != nil {
		return err
	}
	var written sync.WaitGroup
	written.Go(func() {
		// A write error means that the sandbox is gone, and its end says more.
		_ = json.NewEncoder(child.job).Encode(job)
	})
	stop := context.AfterFunc(ctx, child.kill)
	defer stop()

	done := false
	var refused string
	streamErr := receive(child.events, func(e lab.Event) {
		switch e.Type {
		case eventAlive:
			return
		case lab.EventDone:
			done, refused = true, e.Message
			// The way in ends only here: before, its end tells the agent that its parent is gone.
			_ = child.job.Close()
			if refused != "" {
				return
			}
		}
		emit(e)
	})
	if streamErr != nil {
		child.kill()
	}
	exit := child.wait()
	_ = child.job.Close()
	written.Wait()
	switch {
	case ctx.Err() != nil && !done:
		return context.Cause(ctx)
	case streamErr != nil:
		return streamErr
	case refused != "":
		return errors.New(refused)
	case done:
		return nil
	}
	return s.explain(exit, log)
}

// explain says why a sandbox ended before its job was done.
func (s *Sandbox) explain(exit error, log *tail) error {
	last := log.last(20)
	var status *exec.ExitError
	if errors.As(exit, &status) {
		switch code := status.ExitCode(); {
		case code == exitSetUp:
			return s.unavailable(errors.New(last))
		case code == 128+int(syscall.SIGKILL), code == -1:
			return fmt.Errorf("the sandbox was killed (%w): if nobody did it, the machine ran out of memory; its last words:\n%s", exit, last)
		}
	}
	return fmt.Errorf("the sandbox ended before its job was done (%v); its last words:\n%s", exit, last)
}

// sandboxed is a running sandbox.
type sandboxed struct {
	job    *os.File // way in
	events *os.File // way back
	kill   func()
	wait   func() error // returns when it is gone and its log is read
}

// start starts the sandbox; with a shell it is the terminal's foreground until it is gone.
func (s *Sandbox) start(log io.Writer, shell bool) (*sandboxed, error) {
	jobR, jobW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make the sandbox's job pipe: %w", err)
	}
	eventsR, eventsW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the sandbox's event pipe: %w", err), jobR.Close(), jobW.Close())
	}
	cmd := &exec.Cmd{
		Path:        "/proc/self/exe",
		Args:        []string{sandboxArg},
		Env:         os.Environ(),
		Stdin:       jobR,
		Stdout:      log,
		Stderr:      log,
		ExtraFiles:  []*os.File{eventsW},
		SysProcAttr: s.attributes(),
	}
	takeBack := func() error { return nil }
	if shell {
		if takeBack, err = lendTerminal(cmd); err != nil {
			return nil, errors.Join(err, jobR.Close(), jobW.Close(), eventsR.Close(), eventsW.Close())
		}
	}
	kill, wait, err := startOwned(cmd)
	closeErr := errors.Join(jobR.Close(), eventsW.Close())
	if err != nil {
		return nil, errors.Join(s.unavailable(err), closeErr, jobW.Close(), eventsR.Close(), takeBack())
	}
	return &sandboxed{
		job:    jobW,
		events: eventsR,
		kill:   kill,
		wait: func() error {
			err := wait()
			_ = eventsR.Close()
			_ = takeBack() // the terminal may be gone too
			return err
		},
	}, nil
}

// attributes say which namespaces a sandbox is made of.
func (s *Sandbox) attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
	}
	if s.userNamespace() {
		a.Cloneflags |= unix.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
		a.GidMappingsEnableSetgroups = false
	}
	return a
}

func (s *Sandbox) userNamespace() bool { return s.Unprivileged || os.Geteuid() != 0 }
