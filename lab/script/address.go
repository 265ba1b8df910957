package script

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"kplab/lab"
)

// standardHosts are the hosts of every env (see package netns), known before there is one.
var standardHosts = []string{"n1", "n2", "s1", "s2", "c1", "c2", "ext", "other"}

// standardNodes are those of them that run kube-proxy.
var standardNodes = []string{"n1", "n2"}

// addressHelp says how a script or a manifest writes an address of the env.
const addressHelp = "${HOST} stands for a host's primary IPv4 address, ${HOST.ADDRESS} for another one (" +
	"secondary, floating, mgmt), ${HOST/6} and ${HOST.ADDRESS/6} for the IPv6 ones, ${NODE.name} for a node's name in the API"

// addressVariables lists name -> address of all hosts. Without an env the addresses are of the documentation ranges.
func (s *session) addressVariables() (map[string]string, error) {
	vars := map[string]string{}
	add := func(host, address string, family lab.Family, value string) {
		name := host
		if address != "primary" {
			name += "." + address
		}
		if family == lab.IPv6 {
			name += "/6"
		}
		vars[name] = value
	}
	if s.dry {
		for _, host := range standardHosts {
			for _, address := range addressNames {
				add(host, address, lab.IPv4, "192.0.2.1")
				add(host, address, lab.IPv6, "2001:db8::1")
			}
		}
		for _, node := range standardNodes {
			vars[node+".name"] = node
		}
		return vars, nil
	}
	for _, n := range s.Env.Nodes() {
		vars[n.Name()+".name"] = n.Name()
		if c := s.Env.Cluster(); c != nil {
			vars[n.Name()+".name"] = c.NodeName(n.Name())
		}
	}
	for _, name := range s.Env.Hosts() {
		host, err := s.Env.Host(name)
		if err != nil {
			return nil, err
		}
		for _, address := range addressNames {
			for _, family := range []lab.Family{lab.IPv4, lab.IPv6} {
				if addr, ok := host.Address(address, family); ok {
					add(name, address, family, addr.String())
				}
			}
		}
	}
	return vars, nil
}

const (
	modeVariable       = "mode"       // the cell's
	kubernetesVariable = "kubernetes" // the version of a cluster's control plane, v1.37.2
	pauseVariable      = "pause"      // the image of a pod that does nothing, which a cluster's nodes have
)

// setVariables makes the addresses, the cell's mode and the parameters variables of the script.
func (s *session) setVariables() error {
	vars, err := s.addressVariables()
	if err != nil {
		return err
	}
	vars[modeVariable] = string(s.Cell.Mode)
	if !s.dry && s.Env.Cluster() != nil {
		vars[kubernetesVariable] = s.Env.Cluster().Kubernetes()
		vars[pauseVariable] = s.Env.Cluster().PauseImage()
	}
	if s.dry {
		vars[kubernetesVariable] = "v1.37.2"
		vars[pauseVariable] = "pause:3.10"
		vars[modeVariable] = string(lab.NFTables)
		for _, p := range s.script.Parameters { // what is read before there are instances has the first of each
			vars[p.Name] = p.Values[0]
		}
	}
	maps.Copy(vars, s.script.values)
	for name, value := range vars {
		if err := s.state.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

var variable = regexp.MustCompile(`\$\{([^}\n]*)\}`)

// expandAddresses replaces ${HOST...} in a manifest.
func expandAddresses(text []byte, vars map[string]string) ([]byte, error) {
	var unknown error
	out := variable.ReplaceAllFunc(text, func(m []byte) []byte {
		name := string(m[2 : len(m)-1])
		value, ok := vars[name]
		if !ok && unknown == nil {
			unknown = unknownVariable(name, vars)
		}
		return []byte(value)
	})
	return out, unknown
}

func unknownVariable(name string, vars map[string]string) error {
	var known []string
	for v := range vars {
		known = append(known, v)
	}
	slices.Sort(known)
	if suggestion := lab.Suggest(name, known); strings.Contains(suggestion, "mean") {
		return fmt.Errorf("unknown variable ${%s}%s", name, suggestion)
	}
	return fmt.Errorf("unknown variable ${%s}: %s", name, addressHelp)
}
