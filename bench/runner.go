package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"kplab/lab"
	"kplab/lab/agent"
	"kplab/lab/script"
)

// The benchmarks, as flags and trials name them.
const (
	Sync       = "sync"
	Connect    = "connect"
	Churn      = "churn"
	Switch     = "switch"
	Throughput = "throughput"
)

// Known lists the benchmarks in the order in which a trial does them.
func Known() []string { return []string{Sync, Connect, Throughput, Churn, Switch} }

// Runner runs a job's trials on the machine that it lives in, one after the other, each in an env of its own.
type Runner struct {
	NewEnv agent.NewEnv
}

// Run runs the trials. It has the signature of machine.Handler. A trial that fails is told of and does not end the job.
func (r *Runner) Run(ctx context.Context, job lab.Job, machine lab.Machine, emit func(lab.Event)) error {
	for _, trial := range job.Trials {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		say := func(e lab.Event) {
			e.Trial, e.Time = &trial, time.Now().UTC()
			emit(e)
		}
		say(lab.Event{Type: lab.EventTrial})
		end := lab.Event{Type: lab.EventTrialEnd}
		keep := func(m lab.Measurement) { say(lab.Event{Type: lab.EventMeasurement, Measurement: &m}) }
		log := func(text string) { say(lab.Event{Type: lab.EventEvidence, Path: "kube-proxy.log", Data: []byte(text)}) }
		if err := r.trial(ctx, job, trial, machine, keep, log); err != nil {
			end.Message = err.Error()
		}
		say(end)
		// The next trial's figures are its own: what this one has left in memory goes before.
		debug.FreeOSMemory()
	}
	return nil
}

// Unmet says why a machine's kernel cannot run a mode, "" if it can.
func Unmet(mode lab.Mode, machine lab.Machine) string {
	return new(script.Script).KernelUnmet(lab.Cell{Mode: mode}, machine)
}

// trial runs one trial. If it fails, log is given what kube-proxy has logged.
func (r *Runner) trial(ctx context.Context, job lab.Job, trial lab.Trial, machine lab.Machine, keep func(lab.Measurement), log func(string)) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the lab panicked: %v\n%s", p, debug.Stack())
		}
	}()
	for _, mode := range []lab.Mode{trial.Mode, trial.To} {
		if reason := Unmet(mode, machine); mode != "" && reason != "" {
			return errors.New(reason)
		}
	}
	cell := lab.Cell{
		Scenario: "bench", Mode: trial.Mode, KubeProxy: trial.KubeProxy, Substrate: lab.DefaultSubstrate,
	}
	env, err := r.NewEnv(ctx, job, cell, machine)
	if err != nil {
		return err
	}
	s, err := newSite(ctx, env, job.Root, trial, machine)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && ctx.Err() == nil {
			log(s.proxy.Log())
		}
		err = errors.Join(err, s.close())
	}()
	return s.run(ctx, keep)
}

// run does the trial's benchmarks. What comes after a failure is left out: it would measure something else.
func (s *site) run(ctx context.Context, keep func(lab.Measurement)) error {
	wants := func(bench string) bool { return slices.Contains(s.trial.Benches, bench) }
	if err := s.silent(ctx, s.services[0]); err != nil {
		return err
	}
	if wants(Connect) {
		if err := s.floor(ctx, keep); err != nil {
			return err
		}
	}
	m, err := s.start(ctx, eventFirst, targets(spread(s.services)))
	if wants(Sync) || err != nil {
		if err := report(keep, m, err); err != nil {
			return err
		}
	}
	if wants(Connect) {
		if err := s.connect(ctx, keep); err != nil {
			return err
		}
	}
	if wants(Throughput) {
		if err := s.throughput(ctx, keep); err != nil {
			return err
		}
	}
	if wants(Churn) {
		return s.churn(ctx, keep)
	}
	if wants(Switch) {
		return s.switchMode(ctx, keep)
	}
	if wants(Sync) {
		for range repeatsOfSmall {
			if err := s.smallEvents(ctx, keep); err != nil {
				return err
			}
		}
		if err := s.restart(ctx, keep); err != nil {
			return err
		}
	}
	return nil
}
