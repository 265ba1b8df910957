package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"kplab/lab/kubeproxy"
)

func newProxies() *cobra.Command {
	var f cellFlags
	var fetch bool
	c := &cobra.Command{
		Use:   "proxies [VERSION...]",
		Short: "List the kube-proxies at hand, or obtain some",
		Example: `  kplab proxies
  kplab proxies --fetch 1.33.13 1.36.3`,
		RunE: func(c *cobra.Command, versions []string) error {
			root, err := cacheRoot(f.cache)
			if err != nil {
				return err
			}
			dir := filepath.Join(root, "kube-proxy")
			source := kubeproxy.Source{Cache: dir, Progress: func(line string) { fmt.Fprintln(c.ErrOrStderr(), line) }}
			if len(versions) > 0 && !fetch {
				return usageError{fmt.Errorf("proxies takes versions with --fetch only")}
			}
			for _, v := range versions {
				if _, err := source.Obtain(c.Context(), v); err != nil {
					return badVersion(err)
				}
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "VERSION\tCACHED\tFROM")
			var cached []string
			for _, b := range kubeproxy.Cached(dir) {
				cached = append(cached, b.Version)
				fmt.Fprintf(w, "%s\tyes\t%s\n", b.Version, b.Origin)
			}
			for _, v := range kubeproxy.Known() {
				if !slices.Contains(cached, v) {
					fmt.Fprintf(w, "%s\tno\t\n", v)
				}
			}
			return w.Flush()
		},
	}
	f.addCache(c)
	c.Flags().BoolVar(&fetch, "fetch", false, "obtain the named versions: download, or build from the Go module")
	return c
}
