package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"kplab/scenarios"
)

func newList() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the scenarios",
		Args:  args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := scenarios.All()
			if err != nil {
				return err
			}
			type row struct {
				Name    string   `json:"name"`
				Summary string   `json:"summary"`
				Claims  []string `json:"claims"`
			}
			var rows []row
			for _, s := range all {
				r := row{s.Name, s.Summary, []string{}}
				for _, claim := range s.Claims {
					r.Claims = append(r.Claims, claim.ID)
				}
				rows = append(rows, r)
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(rows)
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "SCENARIO\tCLAIMS\tWHAT IT SHOWS")
			for _, r := range rows {
				fmt.Fprintf(w, "%s\t%s\t%s\n", r.Name, strings.Join(r.Claims, " "), r.Summary)
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
