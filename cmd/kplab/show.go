package main

import (
	"fmt"
	"io"
	"sort"
	"strings"

	"github.com/spf13/cobra"

	"kplab/lab/script"
	"kplab/scenarios"
)

func newShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show SCENARIO | commands | conditions",
		Short: "Print a scenario, or the words that scenarios are written in",
		Example: `  kplab show nodeport-localhost
  kplab show commands`,
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: completeScenarios,
		RunE: func(c *cobra.Command, names []string) error {
			switch names[0] {
			case "commands":
				return words(c.OutOrStdout(), script.Commands())
			case "conditions":
				return words(c.OutOrStdout(), script.Conditions())
			}
			chosen, err := scenarios.Select(names)
			if err != nil {
				return usageError{err}
			}
			_, err = io.WriteString(c.OutOrStdout(), chosen[0].Text)
			return err
		},
	}
}

// words prints a vocabulary, one paragraph a word.
func words(w io.Writer, vocabulary []script.Word) error {
	sort.Slice(vocabulary, func(i, j int) bool { return vocabulary[i].Name < vocabulary[j].Name })
	for _, v := range vocabulary {
		if _, err := fmt.Fprintf(w, "%s\n\t%s\n", v.Syntax, v.Summary); err != nil {
			return err
		}
		for line := range strings.Lines(v.Detail) {
			fmt.Fprintf(w, "\t%s\n", strings.TrimSuffix(line, "\n"))
		}
		fmt.Fprintln(w)
	}
	return nil
}
