package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"kplab/lab"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "kplab",
		Short: "Find out what breaks when kube-proxy leaves ipvs mode, before it breaks",
		Long: `kplab runs real kube-proxy binaries in network namespaces, on this kernel and on others in VMs, sends real packets, and
records what each documented behaviour really is in ipvs, iptables and nftables mode.

It never changes this machine's own network, rules or sysctls, and leaves nothing behind.

Exit status: 0 everything as asserted, 1 a check deviates, 2 usage or bad input, 3 the lab could not tell.`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs, // cobra's own check would make a mistyped verb an error of the lab
	}
	root.RunE = func(c *cobra.Command, words []string) error {
		if len(words) == 0 {
			return c.Help()
		}
		var known []string
		for _, sub := range c.Commands() {
			known = append(known, sub.Name())
		}
		return usageError{fmt.Errorf("unknown command %q%s", words[0], lab.Suggest(words[0], known))}
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w (see %s --help)", err, c.CommandPath())}
	})
	root.AddCommand(newRun(), newRepro(), newBench(), newSelftest(), newLedger(), newReport(), newCompare(), newMerge(), newList(), newShow(), newRecover(), newKernels(), newProxies(), newDoctor(), newKind(), newClean(), newOCIRuntime(), newPod())
	return root
}

// version is what go's build information says: a tag, or a commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && (v == "" || v == "(devel)") {
			v = s.Value
		}
	}
	return v
}

// args makes a cobra argument check whose failure is bad input.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, a []string) error {
		if err := check(c, a); err != nil {
			return usageError{fmt.Errorf("%w (see %s --help)", err, c.CommandPath())}
		}
		return nil
	}
}
