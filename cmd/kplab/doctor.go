package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"kplab/lab/machine"
	"kplab/results"
)

func newDoctor() *cobra.Command {
	var f cellFlags
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine can run, and what mends each lack",
		Args:  args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			cache, err := f.machineCache(c)
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			lacking := false
			for _, n := range machine.Check(cache) {
				mark := "ok     "
				switch {
				case !n.OK && n.Optional:
					mark = "without"
				case !n.OK:
					mark, lacking = "MISSING", true
				}
				fmt.Fprintf(out, "%s  %-11s %s (for %s)\n", mark, n.Name, n.Detail, n.For)
				if n.Remedy != "" {
					fmt.Fprintf(out, "         mend it with: %s\n", n.Remedy)
				}
			}
			if lacking {
				return exitError(results.ExitUnknown)
			}
			return nil
		},
	}
	f.addCache(c)
	return c
}
