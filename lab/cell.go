package lab

import (
	"fmt"
	"strings"
)

// Kernel says which kernel a cell runs on.
type Kernel struct {
	Name        string `json:"name"`                  // "host", "debian-12", "trixie-backports:6.18", a path
	Release     string `json:"release,omitempty"`     // uname -r, known once the machine is up
	Accelerator string `json:"accelerator,omitempty"` // "host", "kvm" or "tcg"
}

// Userland says whose nft, iptables, ipset, ipvsadm and conntrack kube-proxy calls.
type Userland struct {
	Name  string            `json:"name"`            // "debian-12", "debian-13" or "host"
	Tools map[string]string `json:"tools,omitempty"` // tool -> version, known once the machine is up
}

// Cell is one scenario in one setting. Scenario (which says the parameters), Mode, Kernel.Name, KubeProxy, Userland.Name, Substrate and Repeat identify it.
type Cell struct {
	Scenario string `json:"scenario"`
	// Parameters are what tells the scenario from the other instances of its script: "from": "ipvs".
	Parameters map[string]string `json:"parameters,omitempty"`
	Mode       Mode              `json:"mode"`
	Kernel     Kernel            `json:"kernel"`
	KubeProxy  string            `json:"kubeProxy"` // "1.37.2", without v
	// KubeProxyPath is set where the user named a binary instead of a version.
	KubeProxyPath string   `json:"kubeProxyPath,omitempty"`
	Userland      Userland `json:"userland"`
	Substrate     string   `json:"substrate"` // "netns", "kind" or "cluster"
	// Context and Kubeconfig name the cluster of the substrate "cluster", PodImage is what its pods run. Kubeconfig is "" for what kubectl
	// would take, PodImage for the default.
	Context    string `json:"context,omitempty"`
	Kubeconfig string `json:"kubeconfig,omitempty"`
	PodImage   string `json:"podImage,omitempty"`
	// Repeat numbers the runs of a cell that a run repeats, from 1; 0 where it runs once.
	Repeat int `json:"repeat,omitempty"`
}

// ID is unique within a run and safe as a folder's name.
func (c Cell) ID() string {
	name := strings.NewReplacer("/", "_", ":", "_", " ", "_").Replace(c.Kernel.Name)
	id := fmt.Sprintf("%s.%s.%s.%s.%s.%s", c.Scenario, c.Mode, name, c.KubeProxy, c.Userland.Name, c.Substrate)
	if c.Repeat > 0 {
		id += fmt.Sprintf(".%03d", c.Repeat)
	}
	return id
}

// Once is the cell without its repeat's number: what all repeats have in common.
func (c Cell) Once() Cell {
	c.Repeat = 0
	return c
}

// Repro is the command that runs this cell alone.
func (c Cell) Repro() string { return "kplab repro " + c.Args() }

// Args are the scenario and the flags that name this cell alone to any verb that runs cells.
func (c Cell) Args() string {
	if c.Substrate == ClusterSubstrate {
		s := c.Scenario + " --substrate " + ClusterSubstrate
		if c.Kubeconfig != "" {
			s += " --kubeconfig " + ShellWord(c.Kubeconfig)
		}
		if c.PodImage != "" {
			s += " --pod-image " + ShellWord(c.PodImage)
		}
		return s + " --context " + ShellWord(c.Context)
	}
	proxy := c.KubeProxy
	if c.KubeProxyPath != "" {
		proxy = c.KubeProxyPath
	}
	s := fmt.Sprintf("%s --mode %s --kernel %s --kube-proxy %s", c.Scenario, c.Mode, c.Kernel.Name, proxy)
	if c.Userland.Name != DefaultUserland {
		s += " --userland " + c.Userland.Name
	}
	if c.Substrate != DefaultSubstrate {
		s += " --substrate " + c.Substrate
	}
	return s
}

// ShellWord quotes what a shell would not take as one word.
func ShellWord(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// ClusterSubstrate is the substrate of a cluster that existed before: it dictates the mode, the kernel, kube-proxy and its userland.
// Cells name the latter three by this word.
const ClusterSubstrate = "cluster"

// Defaults of the flags that every verb with cells shares.
const (
	DefaultUserland  = "debian-12"
	DefaultSubstrate = "netns"
	DefaultKubeProxy = "1.37.2"
)
