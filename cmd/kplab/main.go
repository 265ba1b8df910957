// Kplab finds out what breaks when kube-proxy changes its mode: it runs real kube-proxy binaries on real kernels and sends
// real packets. See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"kplab/bench"
	"kplab/lab"
	"kplab/lab/agent"
	"kplab/lab/machine"
	"kplab/netns"
	"kplab/results"
)

// Exit statuses, beside those of package results.
const exitUsage = 2

func main() {
	if machine.IsAgent() {
		if err := machine.Serve(context.Background(), work); err != nil {
			fmt.Fprintln(os.Stderr, "kplab agent:", err)
			os.Exit(results.ExitUnknown)
		}
		return
	}
	ctx, stop := interruptible()
	err := newRoot().ExecuteContext(ctx)
	stop()
	os.Exit(status(err))
}

// work does a job inside a machine: its cells, or the trials of a benchmark.
func work(ctx context.Context, job lab.Job, m lab.Machine, emit func(lab.Event)) error {
	if job.Cluster != nil {
		return kindGuest(ctx, job, m, emit)
	}
	if len(job.Trials) > 0 {
		return (&bench.Runner{NewEnv: netns.New}).Run(ctx, job, m, emit)
	}
	return (&agent.Agent{NewEnv: netns.New, Shell: nodeShell}).Run(ctx, job, m, emit)
}

// interruptible returns a context that ends with the first SIGINT or SIGTERM: what runs then ends in order, and the results
// so far are written. A second signal kills.
func interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		if sig, ok := <-signals; ok {
			fmt.Fprintf(os.Stderr, "\nkplab: %v: ending the run and writing what there is; once more kills\n", sig)
			cancel(fmt.Errorf("interrupted by signal: %v", sig))
			signal.Stop(signals)
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		cancel(nil)
	}
}

// usageError is bad input: exit status 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// exitError ends kplab with a status that the run's verdicts gave; everything has been said already.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// status prints an error, once, and returns the exit status that it means.
func status(err error) int {
	var exit exitError
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return int(exit)
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, "kplab:", err)
		return exitUsage
	}
	fmt.Fprintln(os.Stderr, "kplab:", err)
	return results.ExitUnknown
}
