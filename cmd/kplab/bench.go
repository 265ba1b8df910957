package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kplab/bench"
	"kplab/lab"
	"kplab/lab/machine"
	"kplab/lab/plan"
	"kplab/results"
)

func newBench() *cobra.Command {
	var f cellFlags
	var quick bool
	var period time.Duration
	d := bench.DefaultSettings()
	asked := d
	c := &cobra.Command{
		Use:   "bench [" + strings.Join(bench.Known(), "|") + "]...",
		Short: "Measure sync latency, first-packet latency, churn, throughput and the gap of a switch",
		Long: `Measure a real kube-proxy on one node, in every mode, one run of each mode after the other. Without names: sync and connect.

  sync        N Services: first sync; adding a Service, changing an endpoint, removing a Service at that size; a restart. From the API event
              until packets pass, by kube-proxy's own metrics, and what CPU, memory, tools, rules and elements it takes
  connect     SYN to SYN-ACK at a client pod: ClusterIP and NodePort, first, middle and last Service, beside the same path without a Service
  throughput  connections and packets a second, beside the same path without a Service
  churn       endpoints changing at a rate: latency, CPU, and how long kube-proxy lags behind at the end
  switch      from each mode to each other one: how long no connection is possible, for new and for old connections

An event counts as measured only if kube-proxy is synced and the data plane serves in the end; else it is an error, and listed.

--kernel auto takes the host kernel if it can run all modes asked for, and otherwise a VM for all of them: figures of two machines cannot
be compared. --kernel host, and --quick unless it is told otherwise, measure the modes that the host can run and say which it cannot.

Leaves a folder: bench.txt (Go benchmark format: benchstat reads it), samples.csv, gaps.csv, bench.json.`,
		Example: `  kplab bench --quick
  kplab bench sync --mode iptables,nftables --kernel host --services 1000,10000 --count 6
  kplab bench connect --services 30000 --kernel debian-12
  kplab bench switch --services 10,1000
  kplab bench churn --services 5000 --rates 100,1000 --duration 20s`,
		ValidArgs: bench.Known(),
		RunE: func(c *cobra.Command, names []string) error {
			s := d
			if quick {
				s = bench.QuickSettings()
			}
			set := c.Flags().Changed
			for name, take := range map[string]func(){
				"services":        func() { s.Services = asked.Services },
				"endpoints":       func() { s.Endpoints = asked.Endpoints },
				"count":           func() { s.Count = asked.Count },
				"samples":         func() { s.Samples = asked.Samples },
				"rates":           func() { s.Rates = asked.Rates },
				"duration":        func() { s.Duration = asked.Duration },
				"min-sync-period": func() { s.MinSyncPeriod, s.ChurnPeriod = period, period },
			} {
				if set(name) {
					take()
				}
			}
			if len(names) > 0 {
				s.Benches = names
			}
			m := plan.Default()
			if quick {
				m.Kernels = []string{plan.Host} // a VM without KVM would take ten times as long
			}
			f.override(c, &m)
			return runBench(c, s, m, &f)
		},
	}
	f.addSetting(c, plan.Default())
	flags := c.Flags()
	flags.IntSliceVar(&asked.Services, "services", d.Services, "`numbers` of Services")
	flags.IntSliceVar(&asked.Endpoints, "endpoints", d.Endpoints, "`numbers` of endpoints of each Service")
	flags.IntVar(&asked.Count, "count", d.Count, "measure everything `N` times; a confidence interval needs 6")
	flags.IntVar(&asked.Samples, "samples", d.Samples, "connections for each point of connect")
	flags.IntSliceVar(&asked.Rates, "rates", d.Rates, "churn: endpoint changes a second")
	flags.DurationVar(&asked.Duration, "duration", d.Duration, "churn and throughput: how long each is kept up")
	flags.DurationVar(&period, "min-sync-period", d.MinSyncPeriod, "kube-proxy's minSyncPeriod in iptables and nftables mode (for churn, the default is kube-proxy's own, 1s)")
	flags.BoolVar(&quick, "quick", false, "a shape in about two minutes: 100 and 1000 Services, 3 times, on the host kernel")
	return c
}

// benchMachine is what one machine measures.
type benchMachine struct {
	kernel, userland string
	trials           []lab.Trial
}

// runBench measures and shows what it came to.
func runBench(c *cobra.Command, s bench.Settings, m plan.Matrix, f *cellFlags) error {
	s.Modes, s.KubeProxies = m.Modes, m.KubeProxies
	if err := errors.Join(m.Validate(), s.Validate()); err != nil {
		return usageError{err}
	}
	ctx, out, said := c.Context(), c.OutOrStdout(), c.ErrOrStderr()
	say := func(line string) { fmt.Fprintln(said, line) }
	matrix := m
	matrix.Kernels = nil // which kernel a mode needs is decided here, for all modes together
	for _, name := range m.Kernels {
		if name == plan.Auto || name == plan.Host {
			continue
		}
		if _, err := machine.ParseKernel(name); err != nil {
			return usageError{err}
		}
	}
	l, err := prepare(ctx, matrix, nil, f.cache, say)
	if err != nil {
		return err
	}
	s.KubeProxies = matrix.KubeProxies // paths have become versions
	machines, left, err := l.benchMachines(ctx, s, m)
	if err != nil {
		return err
	}
	for _, line := range left {
		say(line)
	}
	trials := 0
	for _, b := range machines {
		trials += len(b.trials)
	}
	if trials == 0 {
		return usageError{errors.New("nothing is left to measure: choose other modes or kernels")}
	}
	dir := f.folder("-bench")
	recorder, err := bench.NewRecorder(dir, bench.Book{Command: os.Args, Host: results.ThisHost(), Settings: s, Left: left})
	if err != nil {
		return err
	}
	say(fmt.Sprintf("%d trials into %s; Ctrl-C ends and keeps what there is", trials, dir))
	l.measure(ctx, machines, recorder, said)
	reason := ""
	if cause := context.Cause(ctx); cause != nil {
		reason = cause.Error()
	}
	book, err := recorder.Close(reason)
	if err != nil {
		return err
	}
	return showBench(out, book, dir)
}

// benchMachines decides what runs where, and says what is left out.
func (l *laboratory) benchMachines(ctx context.Context, s bench.Settings, m plan.Matrix) (machines []benchMachine, left []string, err error) {
	for _, userland := range m.Userlands {
		for _, kernel := range m.Kernels {
			b, here := benchMachine{kernel: kernel, userland: userland}, s
			if kernel == plan.Auto || kernel == plan.Host {
				host, err := l.inspectHost(ctx, userland)
				if err != nil {
					return nil, nil, err
				}
				b.kernel, here.Modes = plan.Host, nil
				for _, mode := range s.Modes {
					reason := bench.Unmet(mode, host)
					switch {
					case reason == "":
						here.Modes = append(here.Modes, mode)
					case kernel == plan.Auto:
						left = append(left, fmt.Sprintf("the host kernel is not measured: %s. All modes run on %s and are compared there; --kernel host measures the others here", reason, plan.VMKernel))
						b.kernel = plan.VMKernel
					default:
						left = append(left, fmt.Sprintf("%s mode is not measured on the host: %s. --kernel auto or %s measures all modes in a VM", mode, reason, plan.VMKernel))
					}
				}
				if b.kernel != plan.Host {
					here.Modes = s.Modes
				}
			}
			if b.kernel != plan.Host {
				if userland == machine.KernelHost {
					return nil, nil, usageError{fmt.Errorf("a VM cannot take the host's userland along: --kernel %s needs --userland debian-12 or debian-13", kernel)}
				}
				l.obtainKernel(ctx, b.kernel)
			}
			if len(here.Modes) > 0 {
				b.trials = here.Trials()
				machines = append(machines, b)
			}
		}
	}
	return machines, left, context.Cause(ctx)
}

// measure runs the machines one after the other.
func (l *laboratory) measure(ctx context.Context, machines []benchMachine, recorder *bench.Recorder, said io.Writer) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, b := range machines {
		recorder.Begin(b.kernel, b.userland)
		g := plan.Group{Substrate: lab.DefaultSubstrate, Kernel: b.kernel, Userland: b.userland}
		progress := bench.NewProgress(said, b.trials)
		runner, err := l.runner(ctx, g)
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			job := l.job(g)
			job.Trials = b.trials
			err = runner.Run(ctx, job, func(e lab.Event) {
				progress.Add(e)
				if err := recorder.Add(e); err != nil {
					cancel(err) // nothing more can be written; recorder.Close returns the error
				}
			})
		}
		if err != nil && context.Cause(ctx) == nil {
			recorder.Fail(err.Error())
		}
	}
}

// showBench prints a benchmark that is over.
func showBench(w io.Writer, book bench.Book, dir string) error {
	if err := bench.Table(w, dir); err != nil {
		return err
	}
	if err := bench.Costs(w, book); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nResults in %s: %s (benchstat reads it), %s, %s.\n", dir, bench.FiguresFile, bench.SamplesFile, bench.SettingsFile)
	if len(book.Failures) == 0 && book.Interrupted == "" {
		return nil
	}
	for _, f := range book.Failures {
		what := slices.DeleteFunc([]string{f.Kernel, f.Trial, f.Name}, func(s string) bool { return s == "" })
		fmt.Fprintf(w, "not measured: %s: %s\n", strings.Join(what, ", "), strings.TrimSpace(f.Reason))
	}
	if book.Interrupted != "" {
		fmt.Fprintln(w, "not complete:", book.Interrupted)
	}
	return exitError(results.ExitUnknown)
}
