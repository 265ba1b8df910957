package kindcluster

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// What is written at most, with some to spare: the scratch folders and results of a build (2.4 GB seen), and the nodes of a cluster of three with
// their images (3 GB seen).
const (
	buildRoom   = 4 << 30
	clusterRoom = 4 << 30
)

// room is an error if a folder's file system has less than need bytes free for what.
func room(folder string, need uint64, what string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(folder, &fs); err != nil {
		return fmt.Errorf("free space of %s: %w", folder, err)
	}
	free := fs.Bavail * uint64(fs.Bsize)
	if free >= need {
		return nil
	}
	const gb = 1e9
	return fmt.Errorf("%s needs %.1f GB free in %s, and %.1f GB are: free some (kplab clean, docker system prune), or take another disk (--cache DIR)", what, float64(need)/gb, folder, float64(free)/gb)
}

// roomForCluster is [room] where the engine keeps its containers; an engine on another machine has to see for itself.
func (e *Engine) roomForCluster(ctx context.Context) error {
	field := map[string]string{docker: "{{.DockerRootDir}}", podman: "{{.Store.GraphRoot}}"}
	root, err := e.Run(ctx, "info", "--format", field[e.program])
	if err != nil {
		return err
	}
	if err := unix.Access(root, unix.F_OK); err != nil {
		return nil
	}
	return room(root, clusterRoom, "a cluster")
}

// capabilityHint says what may be the matter where a privileged container does not start: it asks for every capability.
func (e *Engine) capabilityHint(err error) string {
	denied := strings.Contains(err.Error(), "operation not permitted") || strings.Contains(err.Error(), "capabilit")
	if e.host != "" || !denied {
		return "" // ours asks only for what there is
	}
	var missing []string
	for _, c := range capabilities {
		if !hasCapability(c) {
			missing = append(missing, c)
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("; this machine lacks %s, which a node, a privileged container, asks for: kplab kind engine starts an engine that does without", strings.Join(missing, ", "))
}
