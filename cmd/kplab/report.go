package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"kplab/results/report"
)

func newReport() *cobra.Command {
	var o report.Options
	c := &cobra.Command{
		Use:   "report RESULTS... -o DIR",
		Short: "Publish runs and figures as one page, and as Markdown, JUnit XML, JSON, SVG and CSV",
		Long: `Publish the results of kplab run and kplab bench. RESULTS are their folders. DIR gets index.html, a page that stands alone:
the verdict, the matrix with the checks, evidence and command of each cell, what differs between the modes, the ledger of claims,
plots of the figures with their data, and the setting. Beside it lie report.md (for a comment on a pull request, at most 60 kB),
junit.xml, report.json, cells.csv, figures.csv and the plots as SVG and CSV.

The page links to the evidence where it lies, as long as it lies there; --evidence copies it.`,
		Example: `  kplab report results/20261130-023213 -o report
  kplab report results/nightly-* --evidence -o site
  kplab report results/ci --page https://example.org/kplab/ -o report`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, dirs []string) error {
			if o.Dir == "" {
				return usageError{errors.New("where to? give a folder with -o DIR")}
			}
			catalogue, err := catalogue()
			if err != nil {
				return err
			}
			o.Catalogue = catalogue
			o.Family = familyOf
			var sources []report.Source
			for _, dir := range dirs {
				s, err := report.Read(dir)
				if err != nil {
					return usageError{err}
				}
				if s.Run != nil && s.Run.Sabotage != "" {
					return sabotaged(dir, s.Run.Sabotage)
				}
				sources = append(sources, s)
			}
			if err := report.Write(o, sources...); errors.Is(err, report.ErrOccupied) {
				return usageError{err}
			} else if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "The report is %s\n", filepath.Join(o.Dir, "index.html"))
			return err
		},
	}
	c.Flags().StringVarP(&o.Dir, "output", "o", "", "`folder` for the report")
	c.Flags().BoolVar(&o.Evidence, "evidence", false, "copy the cells' evidence into the report")
	c.Flags().StringVar(&o.URL, "page", "", "`URL` at which the page will be published, for report.md to link to")
	return c
}

// sabotaged refuses a run that is no evidence.
func sabotaged(dir, sabotage string) error {
	return usageError{fmt.Errorf("%s was sabotaged on purpose (%s, kplab selftest): it is no evidence; leave it out", dir, sabotage)}
}
