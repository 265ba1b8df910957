package netns

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"kplab/lab/kubeproxy"
)

// dumps are the tools whose output is a node's state, by the name of the file that keeps it. One that fails (an older
// kernel, a feature that is not there) leaves what it said.
var dumps = map[string][]string{
	"nft.txt":            {"nft", "list", "ruleset"},
	"iptables-save.txt":  {"iptables-save", "-c"},
	"ip6tables-save.txt": {"ip6tables-save", "-c"},
	"ipset.txt":          {"ipset", "save"},
	"ipvsadm.txt":        {"ipvsadm", "-Sn"},
	"addresses.txt":      {"ip", "addr", "show"},
	"routes.txt":         {"ip", "route", "show", "table", "all"},
	"conntrack.txt":      {"conntrack", "-L"},
	"conntrack-S.txt":    {"conntrack", "-S"},
}

// Evidence implements lab.Env: per node the rulesets, addresses, conntrack, kube-proxy's log and metrics; and the objects.
func (e *env) Evidence(ctx context.Context) map[string][]byte {
	files := map[string][]byte{}
	var mu sync.Mutex
	add := func(name string, data []byte) {
		mu.Lock()
		defer mu.Unlock()
		files[name] = data
	}
	var wg sync.WaitGroup
	for _, n := range e.nodes {
		wg.Go(func() {
			for name, argv := range dumps {
				out, err := n.Run(ctx, argv...)
				if err != nil {
					out += fmt.Sprintf("\n# %v\n", err)
				}
				add(n.Name()+"/"+name, []byte(out))
			}
			add(n.Name()+"/kube-proxy.log", []byte(n.proxy.Log()))
			if m, err := n.proxy.Metrics(ctx); err == nil {
				add(n.Name()+"/metrics.txt", []byte(m.(*kubeproxy.Metrics).Text()))
			}
			if lines := n.proxy.Errors(); len(lines) > 0 {
				add(n.Name()+"/kube-proxy-errors.txt", []byte(strings.Join(lines, "\n")+"\n"))
			}
			add(n.Name()+"/sysctls.txt", []byte(n.sysctls()))
		})
	}
	var objects []string
	for _, o := range e.api.Objects() {
		if text, err := yaml.Marshal(o); err == nil {
			objects = append(objects, string(text))
		}
	}
	add("objects.yaml", []byte(strings.Join(objects, "---\n")))
	wg.Wait()
	return files
}
