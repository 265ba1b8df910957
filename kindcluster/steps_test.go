package kindcluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"sigs.k8s.io/kind/pkg/log"
)

// What kind says without a terminal: a line as a step begins, and one as it ends.
func TestSteps(t *testing.T) {
	var said []string
	var logger log.Logger = &steps{say: func(line string) { said = append(said, line) }}
	logger.V(0).Info(" • Preparing nodes 📦 📦 📦  ...\n")
	logger.V(0).Info(" ✓ Preparing nodes 📦 📦 📦\n")
	logger.V(0).Infof(" • %s  ...\n", "Starting control-plane 🕹️")
	logger.V(1).Info(" • of no interest")
	logger.Warnf("%d nodes are slow", 2)
	logger.Warn("WARNING: Overriding docker network due to KIND_EXPERIMENTAL_DOCKER_NETWORK")
	logger.Warn("WARNING: Here be dragons! This is not supported currently.")
	assert.Equal(t, []string{"kind: Preparing nodes: 0s", "kind: 2 nodes are slow"}, said)
}
