// Package agent runs a job's cells inside a machine, each in a fresh env, several at a time.
package agent

import (
	"context"
	"fmt"
	"runtime/debug"
	"sort"
	"sync"
	"time"

	"kplab/lab"
	"kplab/lab/script"
)

// NewEnv makes the env of one cell.
type NewEnv func(ctx context.Context, job lab.Job, cell lab.Cell, machine lab.Machine) (lab.Env, error)

// Shell opens an interactive shell in an env that a script has left up.
type Shell func(ctx context.Context, env lab.Env) error

// Agent runs cells on the machine it lives in.
type Agent struct {
	NewEnv NewEnv
	Shell  Shell // nil where the machine has no terminal
}

// cellDeadline bounds one cell on the reference machine: it stands against a hang, not against slowness.
const cellDeadline = 3 * time.Minute

// closeDeadline bounds taking evidence and closing the env, which go on when the run is cancelled.
const closeDeadline = 20 * time.Second

// Queue is a job's cells, each of which is taken once. It may be shared by agents that stand for several places to run them in.
type Queue struct {
	mu   sync.Mutex
	left []lab.Cell
}

// NewQueue queues a job's cells as those of a machine.
func NewQueue(job lab.Job, machine lab.Machine) *Queue {
	q := &Queue{}
	for _, c := range job.Cells {
		c.Kernel.Release, c.Kernel.Accelerator = machine.Release, machine.Accelerator
		c.Userland.Tools = machine.Tools
		q.left = append(q.left, c)
	}
	return q
}

// take returns the next cell; ok is false when there is none.
func (q *Queue) take() (c lab.Cell, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.left) == 0 {
		return lab.Cell{}, false
	}
	c, q.left = q.left[0], q.left[1:]
	return c, true
}

// Left is how many cells nobody has taken yet.
func (q *Queue) Left() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.left)
}

// Run runs the job. It has the signature of machine.Handler.
func (a *Agent) Run(ctx context.Context, job lab.Job, machine lab.Machine, emit func(lab.Event)) error {
	return a.Work(ctx, job, NewQueue(job, machine), machine, emit)
}

// Work runs cells of the queue, as many at once as the job says, until none is left or ctx ends. It returns ctx's cause if that left some.
func (a *Agent) Work(ctx context.Context, job lab.Job, queue *Queue, machine lab.Machine, emit func(lab.Event)) error {
	scripts := map[string]*script.Script{}
	for name, src := range job.Scenarios {
		instances, err := script.Instances(src.File, src.Text)
		if err != nil {
			return err
		}
		for _, s := range instances {
			if s.Name == name {
				scripts[name] = s
			}
		}
	}
	var workers sync.WaitGroup
	for range max(job.Parallel, 1) {
		workers.Go(func() {
			for ctx.Err() == nil {
				c, ok := queue.take()
				if !ok {
					return
				}
				a.cell(ctx, job, c, scripts[c.Scenario], machine, emit)
			}
		})
	}
	workers.Wait()
	if queue.Left() > 0 {
		return context.Cause(ctx)
	}
	return nil
}

// cell runs one cell and emits everything that becomes of it. It always ends with EventEnd.
func (a *Agent) cell(ctx context.Context, job lab.Job, c lab.Cell, s *script.Script, machine lab.Machine, emit func(lab.Event)) {
	id := c.ID()
	say := func(e lab.Event) {
		e.Cell, e.Time = id, time.Now().UTC()
		emit(e)
	}
	result := lab.Result{Cell: c, Repro: c.Repro(), Checks: []lab.Check{}, Evidence: []string{}}
	start := time.Now()
	say(lab.Event{Type: lab.EventStart})
	defer func() {
		if p := recover(); p != nil {
			result.Verdict, result.Reason = lab.Error, fmt.Sprintf("the lab panicked: %v", p)
			say(lab.Event{Type: lab.EventLog, Message: string(debug.Stack())})
		}
		result.DurationMs = time.Since(start).Milliseconds()
		say(lab.Event{Type: lab.EventEnd, Result: &result})
	}()
	keep := func(name string, data []byte) {
		result.Evidence = append(result.Evidence, "cells/"+id+"/"+name)
		say(lab.Event{Type: lab.EventEvidence, Path: name, Data: data})
	}
	if reason := s.KernelUnmet(c, machine); reason != "" {
		result.Verdict, result.Reason = lab.Skip, reason
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lab.Deadlines{Unit: machine.Unit}.Of(cellDeadline), errCellDeadline)
	defer cancel()
	env, err := a.NewEnv(ctx, job, c, machine)
	if err != nil {
		result.Verdict, result.Reason = lab.Error, err.Error()
		return
	}
	scriptCtx, broken, err := sabotaged(ctx, job.Sabotage, env, c, machine)
	if err != nil {
		result.Verdict, result.Reason = notBroken(err)
		_ = env.Close()
		return
	}
	defer broken.end()
	var transcript []byte
	set := script.Setting{
		Env: broken.env, Cell: c, Machine: machine,
		Check: func(k lab.Check) {
			result.Checks = append(result.Checks, k)
			say(lab.Event{Type: lab.EventCheck, Check: &k})
			broken.check(k)
		},
		Gap: func(g lab.Gap) {
			result.Gaps = append(result.Gaps, g)
			say(lab.Event{Type: lab.EventGap, Gap: &g})
		},
		Survivors: func(k lab.Survivors) {
			result.Survivors = append(result.Survivors, k)
			say(lab.Event{Type: lab.EventSurvive, Survive: &k})
		},
		State: func(n lab.State) {
			result.States = append(result.States, n)
			say(lab.Event{Type: lab.EventState, State: &n})
		},
		Log: func(line string) {
			line = fmt.Sprintf("%6.2fs  %s", time.Since(start).Seconds(), line)
			transcript = append(append(transcript, line...), '\n')
			say(lab.Event{Type: lab.EventStep, Message: line})
		},
	}
	result.Verdict, result.Reason = s.Run(scriptCtx, set)
	broken.conclude(scriptCtx, &result)

	// The state is worth most when a run was cut short, so that cancelling it does not cancel this.
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), lab.Deadlines{Unit: machine.Unit}.Of(closeDeadline))
	defer done()
	if result.Verdict != lab.Skip {
		keep("transcript.txt", transcript)
	}
	again := c.Repeat > 1 && result.Verdict == lab.Pass // the state of the first pass will do: that of fifty fills a disk
	if result.Verdict != lab.Skip && broken.wantsEvidence(result.Verdict) && !again {
		files := env.Evidence(closing)
		for _, name := range sorted(files) {
			keep(name, files[name])
		}
	}
	failed := result.Verdict == lab.Fail || result.Verdict == lab.Error
	if a.Shell != nil && (job.Shell == lab.ShellAlways || job.Shell == lab.ShellFailed && failed) {
		if err := a.Shell(context.WithoutCancel(ctx), env); err != nil {
			say(lab.Event{Type: lab.EventLog, Message: "shell: " + err.Error()})
		}
	}
	if err := env.Close(); err != nil && result.Verdict == lab.Pass {
		result.Verdict, result.Reason = lab.Error, fmt.Sprintf("closing the env: %v", err)
		result.Sabotage = nil // it is not what turned the verdict
	}
}

var errCellDeadline = fmt.Errorf("the cell did not end within its deadline")

func sorted(files map[string][]byte) []string {
	names := make([]string, 0, len(files))
	for n := range files {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}
