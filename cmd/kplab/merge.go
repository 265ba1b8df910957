package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"kplab/results"
)

func newMerge() *cobra.Command {
	var dir string
	var newest bool
	c := &cobra.Command{
		Use:   "merge -o DIR SHARD...",
		Short: "Join the shards of a matrix into one run",
		Long: `Join the folders of kplab run --shard I/N, or any runs that have no cell in common, into one run in DIR: run.json, matrix.md,
ledger.md, junit.xml and the evidence, as one run would have left them. What each shard's machines left is in DIR/shards.

A cell that two shards have is an error that names it, unless it is the same in both; with --newest the run that began last has the
say, which is how some cells are run again. Exit status: 0 joined, 3 joined and a shard is missing, 2 cannot be joined.`,
		Example: `  kplab run --shard 1/2 --out shard-1
  kplab run --shard 2/2 --out shard-2
  kplab merge -o whole shard-1 shard-2
  kplab merge -o mended --newest whole again`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, shards []string) error {
			if dir == "" {
				return usageError{errors.New("where to? give a folder with -o DIR")}
			}
			overlap := results.RefuseOverlap
			if newest {
				overlap = results.TakeNewest
			}
			run, err := results.Merge(dir, os.Args, overlap, shards...)
			switch {
			case errors.Is(err, results.ErrOverlap), errors.Is(err, results.ErrUnmergeable), errors.Is(err, results.ErrExists):
				return usageError{err}
			case err != nil:
				return err
			}
			if _, err := fmt.Fprintf(c.OutOrStdout(), "%s\nResults in %s\n", run.Summary(), dir); err != nil {
				return err
			}
			if missing := run.MissingShards(); len(missing) > 0 {
				fmt.Fprintf(c.ErrOrStderr(), "kplab: shard %s is missing: its cells are not in the run\n", strings.Join(missing, ", "))
				return exitError(results.ExitUnknown)
			}
			return nil
		},
	}
	c.Flags().StringVarP(&dir, "output", "o", "", "`folder` for the run")
	c.Flags().BoolVar(&newest, "newest", false, "take cells that several runs have from the run that began last")
	return c
}
