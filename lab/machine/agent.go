package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"kplab/lab"
)

// How the stages of a machine are told by their arguments. The environment would do worse: everything below inherits it.
const (
	sandboxArg = "kplab-sandbox" // Args[0] of pid 1 in a sandbox
	agentArg   = "kplab-agent"   // Args[0] of the agent, pid 2 in either machine
	guestArg   = "kplab-guest"   // the last of a guest's /init's Args, from the kernel's command line

	namespaceTrialArg = "kplab-namespace-trial" // Args[0] of a sandbox's pid 1 that only finds out whether it may be one
)

// exitSetUp is the status of a first stage that could not set its machine up.
const exitSetUp = 100

// eventsFD is the agent's way back; its way in is standard input.
const eventsFD = 3

// Handler runs a job inside a machine. It calls emit, from any goroutine, for what happens to the job's cells; [lab.EventReady] and
// [lab.EventDone] are sent by [Serve]. An error means that the machine could not do the job at all.
type Handler func(ctx context.Context, job lab.Job, machine lab.Machine, emit func(lab.Event)) error

// IsAgent reports whether this process is a stage of a machine, started by [Sandbox] or [VM]. main asks before anything else.
func IsAgent() bool { return stage() != "" }

func stage() string {
	switch {
	case os.Args[0] == sandboxArg, os.Args[0] == agentArg, os.Args[0] == namespaceTrialArg:
		return os.Args[0]
	case os.Getpid() == 1:
		// The kernel puts words of its command line that it does not know before those meant for init.
		if last := os.Args[len(os.Args)-1]; last == guestArg || last == trialArg {
			return last
		}
	}
	return ""
}

// Serve is main where [IsAgent] is true. As a machine's pid 1 it sets the machine up, starts the agent below itself, reaps
// orphans and never returns. As the agent it reads the job, sends [lab.EventReady], calls handle, sends [lab.EventDone] and
// returns; an error is one that the runner also gets.
//
// The agent is not pid 1 itself: a pid 1 has to wait for every orphan, and waiting for any child there would steal the exit
// status of the commands that the agent runs. A first stage with one child of its own has none to steal.
func Serve(ctx context.Context, handle Handler) error {
	switch stage() {
	case sandboxArg:
		os.Exit(sandboxInit())
	case guestArg:
		guestInit()
	case trialArg:
		trialInit()
	case namespaceTrialArg:
		os.Exit(namespaceTrial())
	case agentArg:
		return agent(ctx, os.Stdin, os.NewFile(eventsFD, "events"), handle)
	}
	return errors.New("Serve is for a process that a machine's runner started (see IsAgent)")
}

// agent serves one job.
func agent(ctx context.Context, in io.Reader, out io.Writer, handle Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	send := newSender(out)

	alive := make(chan struct{})
	go func() {
		defer close(alive)
		tick := time.NewTicker(aliveEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				send.send(lab.Event{Type: eventAlive})
			}
		}
	}()
	defer func() { cancel(); <-alive }()

	dec := json.NewDecoder(in)
	var job lab.Job
	if err := dec.Decode(&job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	finished := make(chan struct{})
	defer close(finished)
	go func() {
		// Ends with the process at the latest: what is read from outlives the job by design.
		_, _ = io.Copy(io.Discard, io.MultiReader(dec.Buffered(), in))
		select {
		case <-finished:
		default:
			os.Exit(exitOrphaned)
		}
	}()

	m := inspect(ctx, job)
	send.send(lab.Event{Type: lab.EventReady, Machine: &m})
	err := handle(ctx, job, m, send.send)
	done := lab.Event{Type: lab.EventDone}
	if err != nil {
		done.Message = err.Error()
	}
	send.send(done)
	return errors.Join(err, send.failure())
}

// exitOrphaned is the status of an agent whose runner is gone.
const exitOrphaned = 101

// inspect says what machine this is.
func inspect(ctx context.Context, job lab.Job) lab.Machine {
	m := lab.Machine{
		Release:     release(),
		Accelerator: job.Accelerator,
		CPU:         cpuModel(),
		Cores:       runtime.NumCPU(),
	}
	if m.Accelerator == "" {
		m.Accelerator = AcceleratorHost
	}
	m.Unit = calibrate(ctx, job.Root)
	var group sync.WaitGroup
	group.Go(func() { m.Features = Features() })
	group.Go(func() { m.Tools = Tools(ctx, job.Root) })
	group.Wait()
	return m
}
