package netns

import (
	"context"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"kplab/lab/evidence"
)

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
		wg.Go(func() { evidence.Node(ctx, n, add) })
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
