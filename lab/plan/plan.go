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
	Substrate string
	Kernel    string
	Userland  string
	Cells     []lab.Cell
}

// Name says which machine: "host", "debian-12", "debian-12 (userland debian-13)", "kind on host".
func (g Group) Name() string {
	name := g.Kernel
	if g.Substrate != lab.DefaultSubstrate {
		name = g.Substrate + " on " + name
	}
	if g.Userland != lab.DefaultUserland {
		name += fmt.Sprintf(" (userland %s)", g.Userland)
	}
	return name
}

// Suits is an error if a scenario that the matrix asks for by name has nothing to show on any of its substrates.
func (m Matrix) Suits(scripts []*script.Script) error {
	if len(m.Scenarios) == 0 {
		return nil
	}
	for _, s := range scripts {
		var unmet []string
		for _, substrate := range m.Substrates {
			if why := s.SubstrateUnmet(substrate); why != "" {
				unmet = append(unmet, why)
			}
		}
		if len(unmet) == len(m.Substrates) {
			return fmt.Errorf("scenario %s %s (--substrate)", s.Name, unmet[0])
		}
	}
	return nil
}

// Make multiplies the matrix out. A scenario has no cells on a substrate on which it has nothing to show. host is what the host kernel can do; it is looked at only where Auto is asked for. The
// order is by group (the host first), then scenario, mode and version, so that a run's columns fill from left to right. Cells
// that are repeated run all once before any runs again. Of a matrix with a shard, the cells of the shard.
func Make(m Matrix, scripts []*script.Script, host lab.Machine) []Group {
	groups := once(m, scripts, host)
	if m.Repeat > 1 {
		for i := range groups {
			groups[i].Cells = repeated(groups[i].Cells, m.Repeat)
		}
	}
	return groups
}

// repeated lists cells n times over, numbered.
func repeated(cells []lab.Cell, n int) []lab.Cell {
	var all []lab.Cell
	for repeat := 1; repeat <= n; repeat++ {
		for _, c := range cells {
			c.Repeat = repeat
			all = append(all, c)
		}
	}
	return all
}

// In is the cells of scripts in a cluster that existed before: in its one setting, which cell has.
func In(cell lab.Cell, scripts []*script.Script, repeat int) Group {
	g := Group{Substrate: cell.Substrate, Kernel: cell.Kernel.Name, Userland: cell.Userland.Name}
	for _, s := range scripts {
		cell.Scenario, cell.Parameters = s.Name, s.Values()
		g.Cells = append(g.Cells, cell)
	}
	if repeat > 1 {
		g.Cells = repeated(g.Cells, repeat)
	}
	return g
}

func once(m Matrix, scripts []*script.Script, host lab.Machine) []Group {
	var groups []Group
	mine := m.Shard.share(m, scripts)
	seen := map[string]bool{}
	for _, substrate := range m.Substrates {
		for _, userland := range m.Userlands {
			for _, kernel := range m.Kernels {
				for _, s := range scripts {
					if s.SubstrateUnmet(substrate) != "" {
						continue
					}
					for _, mode := range m.Modes {
						for _, version := range m.KubeProxies {
							if !mine(substrate, userland, string(mode), version, s.Name) {
								continue
							}
							c := lab.Cell{
								Scenario: s.Name, Parameters: s.Values(), Mode: mode, KubeProxy: version, Substrate: substrate,
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

// choose places a cell: on the host unless its kernel is what the cell lacks. A cluster has the kernel of its engine's host.
func choose(c lab.Cell, s *script.Script, host lab.Machine) string {
	if c.Substrate == lab.DefaultSubstrate && s.KernelUnmet(c, host) != "" {
		return VMKernel
	}
	return Host
}

func add(groups []Group, c lab.Cell) []Group {
	for i := range groups {
		if g := groups[i]; g.Substrate == c.Substrate && g.Kernel == c.Kernel.Name && g.Userland == c.Userland.Name {
			groups[i].Cells = append(groups[i].Cells, c)
			return groups
		}
	}
	return append(groups, Group{Substrate: c.Substrate, Kernel: c.Kernel.Name, Userland: c.Userland.Name, Cells: []lab.Cell{c}})
}
