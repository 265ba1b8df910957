package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"kplab/lab"
	"kplab/results"
	"kplab/results/report"
	"kplab/scenarios"
)

// ledgerFormats are the ways to write a ledger.
var ledgerFormats = map[string]func(io.Writer, *results.Book) error{
	"text":     func(w io.Writer, b *results.Book) error { return b.Text(w, textOptions(w)) },
	"markdown": func(w io.Writer, b *results.Book) error { return b.Markdown(w) },
	"json": func(w io.Writer, b *results.Book) error {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(b)
	},
	"html": func(w io.Writer, b *results.Book) error { return report.Ledger(w, b, familyOf) },
}

var ledgerFormatNames = []string{"text", "markdown", "json", "html"}

func familyOf(claim string) string { return scenarios.FamilyOf(claim).Name }

func newLedger() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "ledger RESULTS...",
		Short: "Say of each published claim whether it is so, where that was tested and where the evidence is",
		Long: `Say of each claim in the catalogue, one row each, whether the given runs confirm or contradict it: its source, the sentence in our
words, the modes, kernels and kube-proxies it was tested with, what is really so where it is contradicted, and the folders that
hold the evidence. A claim that no cell of these runs has tested is untested, and the row says why.

RESULTS are run folders, or their run.json. What contradicts a claim in one run contradicts it.`,
		Example: `  kplab ledger results/20261130-023213
  kplab ledger results/* --format markdown > ledger.md
  kplab ledger results/* --format html > ledger.html`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, dirs []string) error {
			write := ledgerFormats[format]
			if write == nil {
				return usageError{fmt.Errorf("unknown format %q%s", format, lab.Suggest(format, ledgerFormatNames))}
			}
			catalogue, err := catalogue()
			if err != nil {
				return err
			}
			var runs []*results.Run
			for _, dir := range dirs {
				run, err := results.Read(dir)
				if err != nil {
					return usageError{err}
				}
				if run.Sabotage != "" {
					return sabotaged(dir, run.Sabotage)
				}
				runs = append(runs, run)
			}
			return write(c.OutOrStdout(), results.NewBook(catalogue, runs...))
		},
	}
	c.Flags().StringVar(&format, "format", "text", "`format`: "+strings.Join(ledgerFormatNames, ", "))
	// The only error is a flag that does not exist.
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(ledgerFormatNames, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// catalogue is the claims, those that only a scenario states included, and the scenarios that bear on each.
func catalogue() (results.Catalogue, error) {
	claims, err := scenarios.Claims()
	if err != nil {
		return results.Catalogue{}, err
	}
	all, err := scenarios.All()
	if err != nil {
		return results.Catalogue{}, err
	}
	c := results.Catalogue{Claims: claims, Scenarios: map[string][]string{}}
	for _, s := range all {
		for _, claim := range s.Claims {
			c.Scenarios[claim.ID] = append(c.Scenarios[claim.ID], s.Name)
			if claim.Text != "" && !slices.ContainsFunc(c.Claims, func(have lab.Claim) bool { return have.ID == claim.ID }) {
				c.Claims = append(c.Claims, claim)
			}
		}
	}
	return c, nil
}

// textOptions are those of the terminal that w is, if it is one.
func textOptions(w io.Writer) results.TextOptions {
	o := results.TextOptions{}
	if fd := int(os.Stdout.Fd()); w == os.Stdout && term.IsTerminal(fd) {
		o.Color = results.UseColor(true)
		if width, _, err := term.GetSize(fd); err == nil {
			o.Width = width
		}
	}
	return o
}
