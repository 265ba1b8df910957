// Package plan turns what a user asks for into cells, grouped by the machine that runs them.
package plan

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"sigs.k8s.io/yaml"

	"kplab/lab"
)

// Matrix is what to run: every scenario in every mode on every kernel with every kube-proxy and userland. It is what the
// flags say, and what a YAML file says with -f:
//
//	scenarios: [clusterip-basics, nodeport-localhost]   # empty: all
//	modes: [ipvs, iptables, nftables]
//	kernels: [auto, debian-11]
//	kubeProxies: ["1.37.2", "1.33.13"]
//	userlands: [debian-12]
//	substrates: [netns]
//	parallel: 2                                         # cells at once; left out: as many as keep the machine busy
//	repeat: 50                                          # how often each cell runs; left out: once
type Matrix struct {
	Scenarios   []string   `json:"scenarios,omitempty"`
	Modes       []lab.Mode `json:"modes,omitempty"`
	Kernels     []string   `json:"kernels,omitempty"`
	KubeProxies []string   `json:"kubeProxies,omitempty"`
	Userlands   []string   `json:"userlands,omitempty"`
	Substrates  []string   `json:"substrates,omitempty"`
	Parallel    int        `json:"parallel,omitempty"` // cells at once on one machine; 0: as many as keep it busy
	Repeat      int        `json:"repeat,omitempty"`   // how often each cell runs; 0 and 1 = once
	Shard       Shard      `json:"-"`                  // the part of it that this machine runs
}

// Default is the matrix of a plain `kplab run`.
func Default() Matrix {
	return Matrix{
		Modes:       lab.Modes(),
		Kernels:     []string{Auto},
		KubeProxies: []string{lab.DefaultKubeProxy},
		Userlands:   []string{lab.DefaultUserland},
		Substrates:  []string{lab.DefaultSubstrate},
	}
}

// ReadFile reads a matrix file strictly; what it leaves out is as in Default.
func ReadFile(name string) (Matrix, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return Matrix{}, err
	}
	var m Matrix
	if err := yaml.UnmarshalStrict(data, &m); err != nil {
		return Matrix{}, fmt.Errorf("%s: %w; known fields are scenarios, modes, kernels, kubeProxies, userlands, substrates, parallel, repeat", name, err)
	}
	m.merge(Default())
	if err := m.Validate(); err != nil {
		return Matrix{}, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// merge fills what m leaves out from d.
func (m *Matrix) merge(d Matrix) {
	fill := func(to *[]string, from []string) {
		if len(*to) == 0 {
			*to = from
		}
	}
	if len(m.Modes) == 0 {
		m.Modes = d.Modes
	}
	fill(&m.Kernels, d.Kernels)
	fill(&m.KubeProxies, d.KubeProxies)
	fill(&m.Userlands, d.Userlands)
	fill(&m.Substrates, d.Substrates)
}

// Kind is the substrate of kind clusters.
const Kind = "kind"

// maxRepeat keeps a run's folder within what a disk holds.
const maxRepeat = 999

// Userlands and substrates that exist.
var (
	Userlands  = []string{"debian-12", "debian-13", "host"}
	Substrates = []string{lab.DefaultSubstrate, Kind, lab.ClusterSubstrate}
)

// Validate checks the words that need no machine to check; all errors are returned, joined.
func (m Matrix) Validate() error {
	var errs []error
	for i, mode := range m.Modes {
		if _, err := lab.ParseMode(string(mode)); err != nil {
			errs = append(errs, err)
		} else if slices.Contains(m.Modes[:i], mode) {
			errs = append(errs, fmt.Errorf("mode %s is named twice", mode))
		}
	}
	for _, list := range []struct {
		what         string
		names, known []string
	}{{"userland", m.Userlands, Userlands}, {"substrate", m.Substrates, Substrates}} {
		for _, name := range list.names {
			if !slices.Contains(list.known, name) {
				errs = append(errs, fmt.Errorf("unknown %s %q%s", list.what, name, lab.Suggest(name, list.known)))
			}
		}
	}
	for _, list := range [][]string{m.Scenarios, m.Kernels, m.KubeProxies, m.Userlands, m.Substrates} {
		for i, name := range list {
			if name == "" {
				errs = append(errs, errors.New("an empty name in a list"))
			} else if slices.Contains(list[:i], name) {
				errs = append(errs, fmt.Errorf("%s is named twice", name))
			}
		}
	}
	if m.Parallel < 0 {
		errs = append(errs, fmt.Errorf("%d cells at once: expected 1 or more, or 0 for as many as keep a machine busy", m.Parallel))
	}
	if m.Repeat < 0 || m.Repeat > maxRepeat {
		errs = append(errs, fmt.Errorf("each cell %d times: expected 1 to %d", m.Repeat, maxRepeat))
	}
	return errors.Join(errs...)
}
