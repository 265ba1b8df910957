package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"kplab/lab"
	"kplab/lab/plan"
	"kplab/lab/sabotage"
	"kplab/results"
)

func newSelftest() *cobra.Command {
	var f cellFlags
	var all bool
	var kinds strings.Builder
	for _, k := range sabotage.Kinds() {
		fmt.Fprintf(&kinds, "  %-15s %s\n", k.Name, k.Summary)
	}
	c := &cobra.Command{
		Use:   "selftest [SCENARIO...]",
		Short: "Break the lab on purpose and demand that every scenario notices",
		Long: `Run each cell as it is, and those that pass again in envs that are broken on purpose, one way after the other, until the
verdict turns to fail or error:

` + kinds.String() + `
A cell that still passes without kube-proxy is a defect of its scenario, and so is one that still passes under every sabotage that
applies to it. Sabotaged cells end at their first deviation. Exit status: 0 clean, 1 a defect, 3 the lab could not tell (a cell
that does not pass as it is, a machine that died).`,
		Example: `  kplab selftest --kernel host --mode iptables,nftables
  kplab selftest nodeport-localhost --mode nftables --all`,
		ValidArgsFunction: completeScenarios,
		RunE: func(c *cobra.Command, names []string) error {
			m := plan.Default()
			f.override(c, &m)
			m.Scenarios = names
			if slices.Contains(m.Substrates, lab.ClusterSubstrate) {
				return usageError{fmt.Errorf("a cluster that is in use is not broken on purpose: selftest goes without --substrate %s", lab.ClusterSubstrate)}
			}
			return selftest(c, m, &f, all)
		},
	}
	f.add(c, plan.Default())
	c.Flags().BoolVar(&all, "all", false, "try every sabotage on every cell, also after one has turned it")
	return c
}

const (
	selftestFile   = "selftest.json"
	selftestSchema = 1 // results/schema/selftest.schema.json
	baselineDir    = "baseline"
)

// selftestReport is the content of selftest.json. Beside it lies a run's folder for each round: baseline, and one for each
// sabotage that was tried. Durations are in milliseconds, times in UTC.
type selftestReport struct {
	Schema     int                 `json:"schema"`
	Started    time.Time           `json:"started"`
	DurationMs int64               `json:"durationMs"`
	Host       results.Host        `json:"host"`
	Command    []string            `json:"command"`
	Sabotages  []string            `json:"sabotages"` // that were tried, in their order
	Cells      []*sabotage.Finding `json:"cells"`

	dir string
}

// selftest runs a matrix as it is and then sabotaged, and shows what noticed.
func selftest(c *cobra.Command, m plan.Matrix, f *cellFlags, all bool) error {
	l, claims, err := ready(c, m, f)
	if err != nil {
		return err
	}
	ctx, stderr := c.Context(), c.ErrOrStderr()
	r := &selftestReport{Schema: selftestSchema, Started: time.Now().UTC(), Host: results.ThisHost(), Command: os.Args, Sabotages: []string{}, dir: f.folder("-selftest")}
	groups, parallel := l.groups, l.parallel
	fmt.Fprintln(stderr, "selftest: every cell as it is")
	run, err := l.record(ctx, filepath.Join(r.dir, baselineDir), results.Options{Claims: claims}, l.follow(stderr))
	if err != nil {
		return err
	}
	of := map[string]*sabotage.Finding{}
	for _, cell := range run.Cells {
		of[cell.ID()] = sabotage.NewFinding(cell)
		r.Cells = append(r.Cells, of[cell.ID()])
	}
	for _, kind := range sabotage.Kinds() {
		l.sabotage, l.parallel = kind.Name, parallel
		if kind.Name == sabotage.NoKubeProxy {
			l.parallel = 2 * cmp.Or(parallel, lab.DefaultParallel) // without kube-proxy cells wait for what does not come, and work little
		}
		l.groups = only(groups, func(c lab.Cell) bool {
			return of[c.ID()].Baseline.Verdict == lab.Pass && (all || !of[c.ID()].Turned())
		})
		if len(l.groups) == 0 || ctx.Err() != nil { // nothing is left to try, or no time
			continue
		}
		r.Sabotages = append(r.Sabotages, kind.Name)
		fmt.Fprintf(stderr, "selftest: %s: %s\n", kind.Name, kind.Summary)
		run, err := l.record(ctx, filepath.Join(r.dir, kind.Name), results.Options{}, l.follow(stderr))
		if err != nil {
			return err
		}
		for _, cell := range run.Cells {
			of[cell.ID()].Add(sabotage.Try(kind.Name, cell))
		}
	}
	r.DurationMs = time.Since(r.Started).Milliseconds()
	if err := r.save(); err != nil {
		return err
	}
	if err := r.show(c.OutOrStdout()); err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if s := r.exitStatus(); s != results.ExitOK {
		return exitError(s)
	}
	return nil
}

// only returns the groups with the cells that are wanted, without those that are left empty.
func only(groups []plan.Group, wanted func(lab.Cell) bool) (out []plan.Group) {
	for _, g := range groups {
		g.Cells = slices.DeleteFunc(slices.Clone(g.Cells), func(c lab.Cell) bool { return !wanted(c) })
		if len(g.Cells) > 0 {
			out = append(out, g)
		}
	}
	return out
}

func (r *selftestReport) count(o sabotage.Outcome) (n int) {
	for _, f := range r.Cells {
		if f.Outcome == o {
			n++
		}
	}
	return n
}

// exitStatus is 1 for a defect; a run that tested no cell at all has told nothing.
func (r *selftestReport) exitStatus() int {
	switch {
	case r.count(sabotage.Survived) > 0:
		return results.ExitFail
	case r.count(sabotage.Unknown) > 0, r.count(sabotage.Turned) == 0:
		return results.ExitUnknown
	}
	return results.ExitOK
}

func (r *selftestReport) save() error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, selftestFile), append(text, '\n'), 0o666)
}

// show prints which sabotage turned which cell, and what to look at where none did.
func (r *selftestReport) show(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "scenario\tmode\tkernel\tkube-proxy\tas it is\t%s\n", strings.Join(r.Sabotages, "\t"))
	for _, f := range r.Cells {
		kernel := f.Kernel.Name
		if f.Kernel.Name == plan.Host && f.Kernel.Release != "" {
			kernel += " " + f.Kernel.Release
		}
		row := []string{f.Scenario, string(f.Mode), kernel, f.KubeProxy, string(f.Baseline.Verdict)}
		for _, name := range r.Sabotages {
			row = append(row, trialText(f, name))
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nfail, error: the verdict that it turned to; pass: not noticed; n/a: does not apply; ?: the lab could not tell; -: not tried")
	for _, f := range r.Cells {
		switch f.Outcome {
		case sabotage.Survived:
			fmt.Fprintf(out, "\nDEFECT %s in %s mode %s\n", f.Scenario, f.Mode, f.Reason)
			for _, t := range f.Trials {
				if t.Outcome == sabotage.Survived {
					fmt.Fprintf(out, "  evidence  %s\n", filepath.Join(r.dir, t.Sabotage, "cells", f.ID()))
				}
			}
		case sabotage.Unknown:
			fmt.Fprintf(out, "\nUNKNOWN %s in %s mode: %s\n", f.Scenario, f.Mode, f.Reason)
		default:
			continue
		}
		fmt.Fprintf(out, "  repeat    %s\n", f.Repeat)
	}
	_, err := fmt.Fprintf(out, "\n%d cells turned, %d defects, %d unknown, %d skipped, in %s\nResults in %s: %s, and a run for each round.\n",
		r.count(sabotage.Turned), r.count(sabotage.Survived), r.count(sabotage.Unknown), r.count(sabotage.NotApplicable),
		(time.Duration(r.DurationMs) * time.Millisecond).Round(100*time.Millisecond), r.dir, selftestFile)
	return err
}

// trialText is one field of the table.
func trialText(f *sabotage.Finding, name string) string {
	for _, t := range f.Trials {
		if t.Sabotage != name {
			continue
		}
		switch t.Outcome {
		case sabotage.Turned:
			return string(t.Verdict)
		case sabotage.Survived:
			return "pass"
		case sabotage.NotApplicable:
			return "n/a"
		}
		return "?"
	}
	return "-"
}
