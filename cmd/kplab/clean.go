package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// cacheParts are the folders that kplab keeps below its cache; clean touches nothing else there.
var cacheParts = []string{"kernels", "userlands", "images", "kube-proxy", "kind", "accel.json"}

func newClean() *cobra.Command {
	var f cellFlags
	c := &cobra.Command{
		Use:   "clean",
		Short: "Remove the cached kernels, userlands and kube-proxies",
		Long: `Remove what kplab has cached, the clusters of a kind run that was killed, and the engines that kplab kind engine has started. Nothing else
is ever left behind: namespaces, links, mounts and processes end with the run, and results are yours.

With --kubeconfig or --context it removes the namespaces that runs with --substrate cluster have left in that cluster, and nothing else. Those of a
run that is under way are among them.`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("kubeconfig") || c.Flags().Changed("context") {
				return cleanCluster(c, f.cluster)
			}
			root, err := cacheRoot(f.cache)
			if err != nil {
				return err
			}
			clusters, err := removeLeftoverClusters(c.Context(), f.cache)
			for _, name := range clusters {
				fmt.Fprintf(c.OutOrStdout(), "removed cluster %s\n", name)
			}
			if err != nil {
				return err
			}
			if folder, err := kindFolder(f.cache); err != nil {
				return err
			} else if err := stopEngines(c.Context(), folder); err != nil {
				return err
			}
			for _, part := range cacheParts {
				path := filepath.Join(root, part)
				size := sizeOf(path)
				if err := os.RemoveAll(path); err != nil {
					return err
				}
				if size > 0 {
					fmt.Fprintf(c.OutOrStdout(), "removed %s (%d MB)\n", path, size>>20)
				}
			}
			return nil
		},
	}
	f.addCache(c)
	f.cluster.addName(c.Flags())
	return c
}

// sizeOf adds up the regular files below path; what cannot be read counts nothing.
func sizeOf(path string) (size int64) {
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			size += info.Size()
		}
		return nil
	})
	return size
}
