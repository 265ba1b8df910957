package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"kplab/lab"
	"kplab/lab/plan"
	"kplab/results"
	"kplab/scenarios"
)

func newRun() *cobra.Command {
	var f cellFlags
	var file, shard string
	var asJSON, overwrite, keep bool
	var repeat int
	c := &cobra.Command{
		Use:   "run [SCENARIO...]",
		Short: "Run scenarios in every mode and show the matrix",
		Long: `Run scenarios (all by default; a name that ends in .txtar is a file) in every mode, on every kernel asked for, with every
kube-proxy asked for, and show the matrix, the differences between the modes and the ledger of claims.

--kernel auto takes the host kernel for each cell that it can run and a VM for the others; each column says which.`,
		Example: `  kplab run
  kplab run nodeport-localhost --mode iptables,nftables
  kplab run --kernel auto,debian-11,debian-13 --kube-proxy 1.33.13,1.37.2
  kplab run -f matrix.yaml --out results/nightly
  kplab run --kernel host --mode iptables,nftables --repeat 50
  kplab run --shard 2/5 --out shard-2
  kplab run ./my-case.txtar --kernel debian-12
  kplab run --substrate cluster --context staging`,
		ValidArgsFunction: completeScenarios,
		RunE: func(c *cobra.Command, names []string) error {
			m := plan.Default()
			if file != "" {
				var err error
				if m, err = plan.ReadFile(file); err != nil {
					return usageError{err}
				}
			}
			f.override(c, &m)
			if len(names) > 0 {
				m.Scenarios = names
			}
			if c.Flags().Changed("repeat") {
				if m.Repeat = repeat; repeat < 1 {
					return usageError{fmt.Errorf("each cell %d times: expected 1 or more", repeat)}
				}
			}
			if c.Flags().Changed("shard") {
				var err error
				if m.Shard, err = plan.ParseShard(shard); err != nil {
					return usageError{err}
				}
			}
			o := runOptions{asJSON: asJSON, overwrite: overwrite}
			if keep {
				o.shell, m.Parallel = lab.ShellFailed, 1
			}
			return runMatrix(c, m, &f, o)
		},
	}
	f.add(c, plan.Default())
	c.Flags().StringVarP(&file, "file", "f", "", "matrix `file` (YAML); flags override it")
	c.Flags().IntVar(&repeat, "repeat", 1, "run every cell `N` times and report what changed between repeats; exit status 1 if a verdict did")
	c.Flags().StringVar(&shard, "shard", "", "run part `I/N` of the cells, such as 2/5; kplab merge joins the parts")
	c.Flags().BoolVar(&asJSON, "json", false, "print run.json instead of the matrix")
	c.Flags().BoolVar(&keep, "keep", false, "leave a failed cell up and open a shell in its n1 (host kernel, one cell at a time)")
	c.Flags().BoolVar(&overwrite, "overwrite", false, "replace the run that --out already holds")
	return c
}

// runOptions say how to run a matrix and how to show it.
type runOptions struct {
	asJSON, overwrite bool
	shell             lab.ShellWhen
	narrate           bool   // every step as it happens, instead of progress
	suffix            string // of the default folder's name
}

// runMatrix runs a matrix and shows what it came to.
func runMatrix(c *cobra.Command, m plan.Matrix, f *cellFlags, o runOptions) (err error) {
	if o.shell != lab.ShellNever && slices.Contains(m.Substrates, lab.ClusterSubstrate) {
		return usageError{fmt.Errorf("--substrate %s has no shell to give: a node that is in use is left alone", lab.ClusterSubstrate)}
	}
	if o.shell != lab.ShellNever && !term.IsTerminal(int(os.Stdin.Fd())) {
		return usageError{errors.New("a shell needs a terminal")}
	}
	l, claims, err := ready(c, m, f)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := l.close(context.WithoutCancel(c.Context())); closeErr != nil {
			fmt.Fprintln(c.ErrOrStderr(), "kplab:", closeErr)
			if err == nil {
				err = exitError(results.ExitUnknown)
			}
		}
	}()
	if l.shell = o.shell; o.shell == lab.ShellAlways && l.groups[0].Kernel != plan.Host {
		return usageError{errors.New("--shell needs --kernel host: a VM has no terminal to give")}
	}
	dir := f.folder(o.suffix)
	follow := l.follow(c.ErrOrStderr())
	if o.narrate {
		follow = follower{add: func(e lab.Event) { narrate(c.OutOrStdout(), e) }, end: func() {}}
	}
	run, err := l.record(c.Context(), dir, results.Options{Claims: claims, Overwrite: o.overwrite}, follow)
	if run == nil {
		return err
	}
	if showErr := show(c.OutOrStdout(), run, dir, o.asJSON); err == nil {
		err = showErr
	}
	if err != nil {
		return err
	}
	if s := results.ExitStatus(run); s != results.ExitOK {
		return exitError(s)
	}
	return nil
}

// ready makes a laboratory of what the user asks for.
func ready(c *cobra.Command, m plan.Matrix, f *cellFlags) (*laboratory, []lab.Claim, error) {
	if err := m.Validate(); err != nil {
		return nil, nil, usageError{err}
	}
	scripts, err := scenarios.Select(m.Scenarios)
	if err != nil {
		return nil, nil, usageError{err}
	}
	if err := m.Suits(scripts); err != nil {
		return nil, nil, usageError{err}
	}
	claims, err := scenarios.Claims()
	if err != nil {
		return nil, nil, err
	}
	in, err := inCluster(c, m)
	if err != nil {
		return nil, nil, err
	}
	if in {
		l, err := readyCluster(c, m, f, scripts)
		return l, claims, err
	}
	l, err := prepare(c.Context(), m, scripts, f.cache, func(line string) { fmt.Fprintln(c.ErrOrStderr(), line) })
	if err != nil {
		return nil, nil, err
	}
	l.kind, l.shard = f.kind, m.Shard
	if len(l.cells()) == 0 {
		return nil, nil, usageError{fmt.Errorf("shard %s has no cell: there are fewer than %d to share", m.Shard, m.Shard.Count)}
	}
	return l, claims, nil
}

// folder is where the results go.
func (f *cellFlags) folder(suffix string) string {
	if f.out != "" {
		return f.out
	}
	return filepath.Join("results", time.Now().UTC().Format("20060102-150405")+suffix)
}

// follower shows a run while it happens. end must be called.
type follower struct {
	add func(lab.Event)
	end func()
}

// follow shows the progress of the laboratory's cells.
func (l *laboratory) follow(w io.Writer) follower {
	o := progressOptions(l.cells())
	o.Terminal = o.Terminal && l.shell == lab.ShellNever // a shell and redrawn lines do not share a terminal
	p := results.NewProgress(w, o)
	return follower{p.Add, p.Close}
}

// record runs the laboratory's cells and keeps what they come to in dir. The run is nil where dir cannot hold one.
func (l *laboratory) record(ctx context.Context, dir string, o results.Options, follow follower) (*results.Run, error) {
	defer follow.end()
	o.Command, o.Host, o.Plan, o.Sabotage, o.Shard, o.Notify = os.Args, results.ThisHost(), l.cells(), l.sabotage, l.shard.String(), follow.add
	store, err := results.Create(dir, o)
	if err != nil {
		return nil, err
	}
	l.dir = dir
	l.runAll(ctx, store)
	reason := ""
	if cause := context.Cause(ctx); cause != nil {
		reason = cause.Error()
	}
	return store.Close(reason)
}

// runAll runs the groups one after the other: two machines at once would share the cores and spoil each other's deadlines.
func (l *laboratory) runAll(ctx context.Context, store *results.Store) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, g := range l.groups {
		stream := store.Machine(g.Cells)
		runner, err := l.runner(ctx, g)
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = runner.Run(ctx, l.job(g), func(e lab.Event) {
				if err := stream.Add(e); err != nil {
					cancel(err) // nothing more can be written; store.Close returns the error
				}
			})
		}
		if err != nil {
			_ = stream.Fail(err.Error())
		}
	}
}

func progressOptions(cells []lab.Cell) results.ProgressOptions {
	fd := int(os.Stderr.Fd())
	o := results.ProgressOptions{Plan: cells, Terminal: term.IsTerminal(fd)}
	o.Color = results.UseColor(o.Terminal)
	o.Width = func() int {
		if w, _, err := term.GetSize(fd); err == nil {
			return w
		}
		return 80
	}
	return o
}

// show prints a finished run.
func show(w io.Writer, run *results.Run, dir string, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(run)
	}
	o := textOptions(w)
	if err := results.Text(w, run, o); err != nil {
		return err
	}
	if err := results.RepeatsText(w, run, o); err != nil {
		return err
	}
	if err := results.DifferencesText(w, run, o); err != nil {
		return err
	}
	if err := results.LedgerText(w, run.Claims, o); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nResults in %s: run.json, matrix.md, ledger.md, junit.xml, and the evidence of each cell.\nEach claim with its source and where it was tested: kplab ledger %s\n", dir, dir)
	return err
}
