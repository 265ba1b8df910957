package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"kplab/kindcluster"
	"kplab/lab"
	"kplab/lab/machine"
)

func newKind() *cobra.Command {
	c := &cobra.Command{
		Use:   "kind",
		Short: "What --substrate kind needs: a container engine and a node image",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(newKindEngine(), newKindImage())
	return c
}

func newKindEngine() *cobra.Command {
	var f cellFlags
	var stop bool
	var count int
	c := &cobra.Command{
		Use:   "engine",
		Short: "Start container engines for the lab, or stop them",
		Long: `Start a dockerd for the lab, beside whatever engine there is. Its state and its socket are in the cache folder. It is needed only where no
engine answers to the docker command already.

A cluster takes one cell at a time. Several engines, each with a cluster, share the cells of a run: --count 2 is worth it from two cores on.

` + kindcluster.EngineChanges + `.`,
		Example: "  sudo kplab kind engine\n  sudo kplab kind engine --count 2\n  sudo kplab kind engine --stop",
		Args:    args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if count < 1 || count > maxEngines {
				return usageError{fmt.Errorf("--count %d: expected 1 to %d", count, maxEngines)}
			}
			folder, err := kindFolder(f.cache)
			if err != nil {
				return err
			}
			if stop {
				return stopEngines(c.Context(), folder)
			}
			have, err := kindcluster.FindEngines(c.Context(), folder, count)
			if err == nil && (count == 1 || len(have) == count) {
				fmt.Fprintln(c.OutOrStdout(), "an engine answers already")
				return nil
			}
			fmt.Fprintln(c.OutOrStdout(), kindcluster.EngineChanges)
			program, err := os.Executable()
			if err != nil {
				return err
			}
			for n := 1; n <= count; n++ {
				at := kindcluster.EngineFolder(folder, n)
				if runs, err := kindcluster.EngineRuns(at); err != nil {
					return err
				} else if runs {
					continue
				}
				if _, err := kindcluster.StartEngine(c.Context(), at, program, lab.Deadlines{}); err != nil {
					return err
				}
			}
			fmt.Fprintln(c.OutOrStdout(), "the engine answers")
			return nil
		},
	}
	c.Flags().BoolVar(&stop, "stop", false, "stop the engines that the lab has started")
	c.Flags().IntVar(&count, "count", 1, "how many `engines`, each for a cluster of its own")
	f.addCache(c)
	return c
}

// maxEngines is more than any machine has the memory for: a cluster of three nodes takes some 2 GB.
const maxEngines = 16

func stopEngines(ctx context.Context, folder string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var errs []error
	for n := 1; n <= maxEngines; n++ {
		errs = append(errs, kindcluster.StopEngine(ctx, kindcluster.EngineFolder(folder, n)))
	}
	return errors.Join(errs...)
}

func newKindImage() *cobra.Command {
	var f cellFlags
	var version string
	c := &cobra.Command{
		Use:   "image",
		Short: "Build the image of kind nodes without a container registry",
		Long: `Build the image of kind nodes from Debian packages and Go modules, with this machine's own mirror and module proxy: about ten minutes on
two cores the first time. Each step's result is cached.`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := kindImages(c.Context(), f.cache, maxEngines, func(line string) { fmt.Fprintln(c.ErrOrStderr(), line) })
			if err != nil {
				return err
			}
			tag := ""
			for _, images := range all {
				if tag, err = images.Node(c.Context(), version); err != nil {
					return err
				}
			}
			fmt.Fprintln(c.OutOrStdout(), tag)
			return nil
		},
	}
	c.Flags().StringVar(&version, "kubernetes", lab.DefaultKubeProxy, "`version` of Kubernetes")
	f.addCache(c)
	return c
}

// newOCIRuntime is what the lab's dockerd runs in place of runc.
func newOCIRuntime() *cobra.Command {
	return &cobra.Command{
		Use: kindcluster.RuntimeVerb, Hidden: true, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error { return kindcluster.OCIRuntime(args) },
	}
}

// kindFolder is where everything about clusters is cached.
func kindFolder(flag string) (string, error) {
	root, err := cacheRoot(flag)
	return filepath.Join(root, "kind"), err
}

// kindImages are those of each engine that a run could have clusters on, most of them at the most.
func kindImages(ctx context.Context, cacheFlag string, most int, say func(string)) ([]*kindcluster.Images, error) {
	folder, err := kindFolder(cacheFlag)
	if err != nil {
		return nil, err
	}
	engines, err := kindcluster.FindEngines(ctx, folder, most)
	if err != nil {
		return nil, err
	}
	userland, err := (machine.Cache{Root: filepath.Dir(folder), Progress: say}).Userland(ctx, lab.DefaultUserland)
	if err != nil {
		return nil, err
	}
	var images []*kindcluster.Images
	for _, e := range engines {
		images = append(images, &kindcluster.Images{Engine: e, Cache: folder, Userland: userland, Progress: say})
	}
	return images, nil
}

// removeLeftoverClusters removes what a run that was killed has left, if an engine answers.
func removeLeftoverClusters(ctx context.Context, cacheFlag string) (removed []string, err error) {
	folder, err := kindFolder(cacheFlag)
	if err != nil {
		return nil, err
	}
	engines, err := kindcluster.FindEngines(ctx, folder, maxEngines)
	if errors.Is(err, kindcluster.ErrNoEngine) {
		return nil, nil
	}
	for _, e := range engines {
		names, goneErr := kindcluster.DeleteLeftovers(ctx, e)
		removed, err = append(removed, names...), errors.Join(err, goneErr)
	}
	return removed, err
}
