package kubeproxy

import (
	"context"
	"net"
	"os/exec"

	"kplab/lab/apiserver"
)

// Host is the node that a kube-proxy runs on.
type Host interface {
	// Name is the name of the node, also in the API.
	Name() string
	// Command prepares a command, with the node's environment.
	Command(ctx context.Context, argv ...string) *exec.Cmd
	// Start starts a prepared command in the node's namespaces and root, on a thread that lives as long as the node, so
	// that a parent-death signal means the node's death.
	Start(cmd *exec.Cmd) error
	// WriteFile writes a file below /run/kplab of the node; name is as the node sees it.
	WriteFile(name string, data []byte) error
	// Dial connects from the node's network namespace. address is a literal IP address and port.
	Dial(ctx context.Context, network, address string) (net.Conn, error)
}

// API is what the API server of the node tells of what it sends. Package apiserver's Server implements it.
type API interface {
	// Existing counts the objects that a kube-proxy which starts now is sent first.
	Existing() apiserver.Changes
	// Changes counts the changes that have been or will be sent to a kube-proxy that watches.
	Changes() apiserver.Changes
}
