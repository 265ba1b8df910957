package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"kplab/lab/machine"
)

func newKernels() *cobra.Command {
	var f cellFlags
	var fetch bool
	c := &cobra.Command{
		Use:   "kernels [KERNEL...]",
		Short: "List the kernels that cells can run on, or fetch some",
		Example: `  kplab kernels
  kplab kernels --fetch debian-11 trixie-backports:6.18`,
		RunE: func(c *cobra.Command, names []string) error {
			cache, err := f.machineCache(c)
			if err != nil {
				return err
			}
			for _, name := range names {
				if _, err := machine.ParseKernel(name); err != nil {
					return usageError{err}
				}
				if !fetch {
					return usageError{fmt.Errorf("kernels takes names with --fetch only")}
				}
				if name == machine.KernelHost {
					continue
				}
				if _, err := cache.Kernel(c.Context(), name); err != nil {
					return err
				}
			}
			all, err := machine.Kernels(cache)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "KERNEL\tRELEASE\tCACHED\tPACKAGE")
			for _, k := range all {
				cached := "no"
				switch {
				case k.Name == machine.KernelHost:
					cached = "-"
				case k.Cached:
					cached = fmt.Sprintf("%d MB", k.Size>>20)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", k.Name, k.Release, cached, k.Package)
			}
			return w.Flush()
		},
	}
	f.addCache(c)
	c.Flags().BoolVar(&fetch, "fetch", false, "fetch the named kernels into the cache")
	return c
}

// machineCache is the cache that the flags name, with its progress on stderr.
func (f *cellFlags) machineCache(c *cobra.Command) (machine.Cache, error) {
	root, err := cacheRoot(f.cache)
	return machine.Cache{Root: root, Progress: func(line string) { fmt.Fprintln(c.ErrOrStderr(), line) }}, err
}
