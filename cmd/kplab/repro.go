package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"kplab/lab"
	"kplab/lab/plan"
)

func newRepro() *cobra.Command {
	var f cellFlags
	var file string
	var shell bool
	c := &cobra.Command{
		Use:   "repro SCENARIO",
		Short: "Run one cell alone and show every step",
		Long: `Run one cell alone and show every step, check and log line as it happens. With --shell the env is left up afterwards and a
shell opens in node n1, with the userland's tools on PATH; when it ends, so does everything else.`,
		Example: `  kplab repro nodeport-localhost --mode nftables --kernel host --kube-proxy 1.37.2
  kplab repro stale-kube-ipvs0 --mode nftables --kernel debian-12
  kplab repro -f case.txtar --mode iptables --shell`,
		Args:              args(cobra.MaximumNArgs(1)),
		ValidArgsFunction: completeScenarios,
		RunE: func(c *cobra.Command, names []string) error {
			if file != "" {
				if len(names) > 0 {
					return usageError{errors.New("a scenario's name or -f FILE, not both")}
				}
				if filepath.Ext(file) != ".txtar" {
					return usageError{fmt.Errorf("%s: expected a scenario file, NAME.txtar", file)}
				}
				names = []string{file}
			}
			if len(names) == 0 {
				return usageError{errors.New("which scenario? 'kplab list' lists them; -f takes a file")}
			}
			m := plan.Default()
			m.Modes, m.Scenarios, m.Parallel = []lab.Mode{lab.NFTables}, names, 1
			f.override(c, &m)
			if n := len(m.Modes) * len(m.Kernels) * len(m.KubeProxies) * len(m.Userlands); n != 1 {
				return usageError{fmt.Errorf("these flags name %d cells: repro runs one; give each of --mode, --kernel, --kube-proxy and --userland one value", n)}
			}
			o := runOptions{narrate: true, suffix: "-repro"}
			if shell {
				o.shell = lab.ShellAlways
			}
			return runMatrix(c, m, &f, o)
		},
	}
	d := plan.Default()
	d.Modes, d.Parallel = []lab.Mode{lab.NFTables}, 1
	f.add(c, d)
	c.Flags().StringVarP(&file, "file", "f", "", "scenario `file`")
	c.Flags().BoolVar(&shell, "shell", false, "afterwards, open a shell in node n1")
	return c
}

// narrate prints an event for somebody who watches.
func narrate(w io.Writer, e lab.Event) {
	switch e.Type {
	case lab.EventReady:
		m := e.Machine
		accelerator := m.Accelerator
		if accelerator != "" {
			accelerator += ", "
		}
		fmt.Fprintf(w, "machine: %s, %s%s, %d cores, unit %.1f\n", m.Release, accelerator, m.CPU, m.Cores, m.Unit)
	case lab.EventStep:
		fmt.Fprintln(w, e.Message)
	case lab.EventCheck:
		mark := "ok"
		if !e.Check.OK {
			mark = "DEVIATES"
		}
		kind := "expect"
		if e.Check.Control {
			kind = "control"
		}
		fmt.Fprintf(w, "  %s %s: %s, observed %s\n", mark, kind, e.Check.Expected, e.Check.Observed)
	case lab.EventLog:
		fmt.Fprintln(w, "machine:", e.Message)
	}
}
