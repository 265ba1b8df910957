package netns

import (
	"context"
	"strings"

	"sigs.k8s.io/yaml"

	"kplab/lab/evidence"
)

// Evidence implements lab.Env: the state of the nodes, and the objects.
func (e *env) Evidence(ctx context.Context) map[string][]byte {
	files := evidence.Collect(ctx, e.Nodes())
	var objects []string
	for _, o := range e.api.Objects() {
		if text, err := yaml.Marshal(o); err == nil {
			objects = append(objects, string(text))
		}
	}
	files["objects.yaml"] = []byte(strings.Join(objects, "---\n"))
	return files
}
