package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"kplab/lab"
	"kplab/results"
	"kplab/results/report"
)

// compareFormats are the ways to write a comparison.
var compareFormats = map[string]func(io.Writer, *results.Comparison) error{
	"text":     func(w io.Writer, c *results.Comparison) error { return c.Text(w, textOptions(w)) },
	"markdown": func(w io.Writer, c *results.Comparison) error { return c.Markdown(w) },
	"html":     report.Comparison,
	"json": func(w io.Writer, c *results.Comparison) error {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(c)
	},
}

var compareFormatNames = []string{"text", "markdown", "html", "json"}

func newCompare() *cobra.Command {
	var format string
	var minChange float64
	c := &cobra.Command{
		Use:   "compare A B",
		Short: "Say what changed from one run to another: verdicts, checks, and figures beyond noise",
		Long: `Say what changed from the results in folder A to those in folder B. Cells are matched by scenario, and by mode, substrate, kernel,
kube-proxy and userland as far as both runs have those in common; where each has just one and they differ, that is what is compared.

Figures (kplab bench) changed if the Mann-Whitney U test says so at alpha 0.05, as benchstat has it, and their medians differ by
--min-change or more: of many figures some are significant by chance. It takes four runs on each side to tell.

Exit status: 1 if a cell that passed now fails or errs, or a figure is worse; 0 otherwise; 2 if there is nothing to compare.`,
		Example: `  kplab compare results/1.33.13 results/1.37.2
  kplab compare results/yesterday results/today --format markdown >> "$GITHUB_STEP_SUMMARY"
  kplab compare old new --format html > compare.html`,
		Args: args(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, dirs []string) error {
			write := compareFormats[format]
			if write == nil {
				return usageError{fmt.Errorf("unknown format %q%s", format, lab.Suggest(format, compareFormatNames))}
			}
			if minChange < 0 {
				return usageError{fmt.Errorf("--min-change %g: expected 0 or more", minChange)}
			}
			var halves []results.Half
			for _, dir := range dirs {
				s, err := report.Read(dir)
				if err != nil {
					return usageError{err}
				}
				if s.Run != nil && s.Run.Sabotage != "" {
					return sabotaged(dir, s.Run.Sabotage)
				}
				halves = append(halves, results.Half{Dir: dir, Run: s.Run, Figures: s.Figures})
			}
			comparison, err := results.Compare(halves[0], halves[1], results.CompareOptions{MinChange: minChange / 100})
			if errors.Is(err, results.ErrNothingInCommon) {
				return usageError{err}
			}
			if err != nil {
				return err
			}
			if err := write(c.OutOrStdout(), comparison); err != nil {
				return err
			}
			if s := comparison.ExitStatus(); s != results.ExitOK {
				return exitError(s)
			}
			return nil
		},
	}
	c.Flags().StringVar(&format, "format", "text", "`format`: "+strings.Join(compareFormatNames, ", "))
	c.Flags().Float64Var(&minChange, "min-change", 5, "`percent` by which a median must change to count")
	// The only error is a flag that does not exist.
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(compareFormatNames, cobra.ShellCompDirectiveNoFileComp))
	return c
}
