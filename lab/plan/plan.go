package plan

import (
	"fmt"
	"slices"

	"kplab/lab"
	"kplab/lab/script"
)

const (
	// Auto stands for the host kernel for each cell that it can run and VMKernel for the others.
	Auto = "auto"
	// Host is the kernel that kplab itself runs on.
	Host = "host"
	// VMKernel is what Auto takes where the host kernel cannot run a cell: the oldest Debian release that nftables mode supports.
	VMKernel = "debian-12"
)

// Group is the cells of one machine.
type Group struct {
	Kernel   string
	Userland string
	Cells    []lab.Cell
}

// Name says which machine: "host", "debian-12", "debian-12 (userland debian-13)".
func (g Group) Name() string {
	if g.Userland == lab.DefaultUserland {
		return g.Kernel
	}
	return fmt.Sprintf("%s (userland %s)", g.Kernel, g.Userland)
}

// Make multiplies the matrix out. host is what the host kernel can do; it is looked at only where Auto is asked for. The
// order is by group (the host first), then scenario, mode and version, so that a run's columns fill from left to right.
func Make(m Matrix, scripts []*script.Script, host lab.Machine) []Group {
	var groups []Group
	seen := map[string]bool{}
	for _, substrate := range m.Substrates {
		for _, userland := range m.Userlands {
			for _, kernel := range m.Kernels {
				for _, s := range scripts {
					for _, mode := range m.Modes {
						for _, version := range m.KubeProxies {
							c := lab.Cell{
								Scenario: s.Name, Mode: mode, KubeProxy: version, Substrate: substrate,
								Kernel: lab.Kernel{Name: kernel}, Userland: lab.Userland{Name: userland},
							}
							if kernel == Auto {
								c.Kernel.Name = choose(c, s, host)
							}
							if id := c.ID(); !seen[id] {
								seen[id] = true
								groups = add(groups, c)
							}
						}
					}
				}
			}
		}
	}
	slices.SortStableFunc(groups, func(a, b Group) int {
		if (a.Kernel == Host) != (b.Kernel == Host) {
			if a.Kernel == Host {
				return -1
			}
			return 1
		}
		return 0
	})
	return groups
}

// choose places a cell: on the host unless its kernel is what the cell lacks.
func choose(c lab.Cell, s *script.Script, host lab.Machine) string {
	if s.KernelUnmet(c, host) != "" {
		return VMKernel
	}
	return Host
}

func add(groups []Group, c lab.Cell) []Group {
	for i := range groups {
		if groups[i].Kernel == c.Kernel.Name && groups[i].Userland == c.Userland.Name {
			groups[i].Cells = append(groups[i].Cells, c)
			return groups
		}
	}
	return append(groups, Group{Kernel: c.Kernel.Name, Userland: c.Userland.Name, Cells: []lab.Cell{c}})
}
