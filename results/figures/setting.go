package figures

import (
	"slices"
	"strings"
)

// settingKeys are the configuration lines that make a setting, in the order in which people read them. Figures that differ in one
// of them were measured on different things. The version of kube-proxy is not among them: it is what is measured.
var settingKeys = []string{"kernel", "accelerator", "cpu", "cores", "substrate", "userland", "nft", "iptables", "ipvsadm", "ipset", "min-sync-period"}

// KubeProxyKey is the configuration line of kube-proxy's version.
const KubeProxyKey = "kube-proxy"

// SettingKeys returns the configuration lines that make a setting.
func SettingKeys() []string { return slices.Clone(settingKeys) }

// Setting is what figures were measured on, without kube-proxy's version. Figures of different settings never share an axis.
type Setting []Key

// Setting is what the line was measured on.
func (l Line) Setting() (s Setting) {
	for _, k := range settingKeys {
		if v := l.Config[k]; v != "" {
			s = append(s, Key{k, v})
		}
	}
	return s
}

// Get is the value of one of the setting's keys, "" where it has none.
func (s Setting) Get(name string) string { return KeyOf(s, name) }

// String is "kernel 6.1.0-39-cloud-amd64, tcg, cpu QEMU, nft 1.0.6".
func (s Setting) String() string {
	var words []string
	for _, k := range s {
		switch k.Name {
		case "accelerator", "substrate":
			words = append(words, k.Value)
		case "cores":
			words = append(words, k.Value+" cores")
		default:
			words = append(words, k.Name+" "+k.Value)
		}
	}
	return strings.Join(words, ", ")
}

// Short is the setting's kernel and accelerator: "6.1.0-39-cloud-amd64 tcg".
func (s Setting) Short() string {
	var words []string
	for _, name := range []string{"kernel", "accelerator"} {
		if v := s.Get(name); v != "" && !slices.Contains(words, v) {
			words = append(words, v)
		}
	}
	return strings.Join(words, " ")
}
