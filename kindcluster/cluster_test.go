package kindcluster

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	kinderrors "sigs.k8s.io/kind/pkg/errors"
	"sigs.k8s.io/kind/pkg/exec"
)

// A command of kind that failed is told with what it said, and without what kubeadm says of each step.
func TestSaid(t *testing.T) {
	failed := &exec.RunError{Command: []string{"docker", "exec", "w", "kubeadm", "join"}, Inner: errors.New("exit status 1"), Output: []byte(`[preflight] Running pre-flight checks
I1130 16:26:01.102030     201 join.go:421] [preflight] found NodeName empty; using OS hostname as NodeName

couldn't validate the identity of the API Server
k8s.io/kubernetes/cmd/kubeadm/app/discovery.For
	k8s.io/kubernetes/cmd/kubeadm/app/discovery/discovery.go:45
k8s.io/kubernetes/cmd/kubeadm/app/cmd.(*joinData).TLSBootstrapCfg
	k8s.io/kubernetes/cmd/kubeadm/app/cmd/join.go:575
runtime.goexit
	runtime/asm_amd64.s:1693
error execution phase preflight
`)}
	assert.Equal(t, ": [preflight] Running pre-flight checks; couldn't validate the identity of the API Server; error execution phase preflight",
		said(kinderrors.Wrap(failed, "failed to join node with kubeadm")))
	assert.Empty(t, said(errors.New("no such image")))
}
