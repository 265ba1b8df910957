package main

import (
	"github.com/spf13/cobra"

	"kplab/results"
)

func newRecover() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "recover DIR",
		Short:   "Write the reports of a run that was killed, from what it had stored",
		Example: "  kplab recover results/20261130-023213",
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, dirs []string) error {
			run, err := results.Recover(dirs[0])
			if err != nil {
				return err
			}
			return show(c.OutOrStdout(), run, dirs[0], asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print run.json instead of the matrix")
	return c
}
