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
	c := &cobra.Command{
		Use:   "engine",
		Short: "Start a container engine for the lab, or stop it",
		Long: `Start a dockerd for the lab, beside whatever engine there is. Its state and its socket are in the cache folder. It is needed only where no
engine answers to the docker command already.

` + kindcluster.EngineChanges + `.`,
		Example: "  sudo kplab kind engine\n  sudo kplab kind engine --stop",
		Args:    args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			folder, err := kindFolder(f.cache)
			if err != nil {
				return err
			}
			if stop {
				ctx, cancel := context.WithTimeout(c.Context(), 2*time.Minute)
				defer cancel()
				return kindcluster.StopEngine(ctx, folder)
			}
			if _, err := kindcluster.FindEngine(c.Context(), folder); err == nil {
				fmt.Fprintln(c.OutOrStdout(), "an engine answers already")
				return nil
			}
			fmt.Fprintln(c.OutOrStdout(), kindcluster.EngineChanges)
			program, err := os.Executable()
			if err != nil {
				return err
			}
			if _, err := kindcluster.StartEngine(c.Context(), folder, program, lab.Deadlines{}); err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), "the engine answers")
			return nil
		},
	}
	c.Flags().BoolVar(&stop, "stop", false, "stop the engine that the lab has started")
	f.addCache(c)
	return c
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
			images, err := kindImages(c.Context(), f.cache, func(line string) { fmt.Fprintln(c.ErrOrStderr(), line) })
			if err != nil {
				return err
			}
			tag, err := images.Node(c.Context(), version)
			if err != nil {
				return err
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

func kindImages(ctx context.Context, cacheFlag string, say func(string)) (*kindcluster.Images, error) {
	folder, err := kindFolder(cacheFlag)
	if err != nil {
		return nil, err
	}
	engine, err := kindcluster.FindEngine(ctx, folder)
	if err != nil {
		return nil, err
	}
	userland, err := (machine.Cache{Root: filepath.Dir(folder), Progress: say}).Userland(ctx, lab.DefaultUserland)
	if err != nil {
		return nil, err
	}
	return &kindcluster.Images{Engine: engine, Cache: folder, Userland: userland, Progress: say}, nil
}

// removeLeftoverClusters removes what a run that was killed has left, if an engine answers.
func removeLeftoverClusters(ctx context.Context, cacheFlag string) ([]string, error) {
	folder, err := kindFolder(cacheFlag)
	if err != nil {
		return nil, err
	}
	engine, err := kindcluster.FindEngine(ctx, folder)
	if errors.Is(err, kindcluster.ErrNoEngine) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return kindcluster.DeleteLeftovers(ctx, engine)
}
