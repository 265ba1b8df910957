package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/kindcluster"
	"kplab/lab"
	"kplab/results"
)

// TestKindExistingCluster makes a kind cluster, leaves its kube-proxy as kubeadm has set it up, and runs scenarios there as in anybody's cluster.
func TestKindExistingCluster(t *testing.T) {
	if os.Getenv("KPLAB_TEST_KIND") == "" {
		t.Skip("makes a kind cluster: set KPLAB_TEST_KIND=1, as make test-kind does")
	}
	all, err := kindImages(t.Context(), "", 1, func(line string) { t.Log(line) })
	require.NoError(t, err)
	images := all[0]
	image, err := images.Node(t.Context(), lab.DefaultKubeProxy)
	require.NoError(t, err)
	cluster, err := kindcluster.Create(t.Context(), kindcluster.Options{Engine: images.Engine, Name: fmt.Sprintf("%d-existing", os.Getpid()), Image: image, Mode: lab.IPTables})
	require.NoError(t, err)
	defer func() { assert.NoError(t, cluster.Delete(t.Context())) }()
	nameControlPlane(t, images.Engine, cluster)
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	address, err := images.Engine.Run(t.Context(), "inspect", "--format", `{{(index .NetworkSettings.Networks "kplab").IPAddress}}`, cluster.ControlPlane.Name)
	require.NoError(t, err)
	text := strings.ReplaceAll(string(cluster.Kubeconfig), cluster.ControlPlane.Name+":", address+":")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(text), 0o600))
	reach := reachEngine(t)
	left := func() string {
		out, err := cluster.Administer(t.Context(), "kubectl", "get", "namespaces", "-l", "kplab/run", "-o", "name")
		require.NoError(t, err)
		return out
	}
	run := func(more ...string) ran {
		// The nodes have the image: nothing is pulled.
		return kplabBehind(t, reach, append([]string{"run", "hairpin", "nodeport-localhost", "--substrate", "cluster", "--kubeconfig", kubeconfig, "--pod-image", "docker.io/library/busybox:1.35"}, more...)...)
	}

	r := run()
	assert.Equal(t, exitUsage, r.status, "nobody can be asked")
	assert.Contains(t, r.stderr, "6 pods of image docker.io/library/busybox:1.35")
	assert.Contains(t, r.stderr, "--yes agrees")
	assert.Empty(t, left())

	r = run("--yes", "--mode", "nftables")
	assert.Equal(t, exitUsage, r.status)
	assert.Contains(t, r.stderr, "--mode nftables: kube-proxy of context kind-"+cluster.Name+" runs in iptables mode")
	assert.Empty(t, left())

	r = run("--yes", "--out", dir+"/run")
	require.Zero(t, r.status, "%s\n%s", r.stdout, r.stderr)
	result, err := results.Read(dir + "/run")
	require.NoError(t, err)
	require.Len(t, result.Cells, 2)
	for _, cell := range result.Cells {
		assert.Equal(t, lab.Pass, cell.Verdict, "%s: %s", cell.ID(), cell.Reason)
		assert.Equal(t, lab.IPTables, cell.Mode)
		assert.Equal(t, lab.DefaultKubeProxy, cell.KubeProxy)
		assert.Equal(t, lab.ClusterSubstrate, cell.Substrate)
		assert.NotEmpty(t, cell.Checks)
	}
	assert.Empty(t, left(), "the run has removed its namespace")
	assert.Contains(t, kplabBehind(t, reach, "clean", "--kubeconfig", kubeconfig).stdout, "has no namespace of a run")
}

// reachEngine is by way of which command a process reaches the clusters of the engine: one of the lab is in a network namespace of its own.
func reachEngine(t *testing.T) []string {
	t.Helper()
	folder, err := kindFolder("")
	require.NoError(t, err)
	pid, err := os.ReadFile(filepath.Join(folder, "dockerd.pid"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	return []string{"nsenter", "--net=/proc/" + strings.TrimSpace(string(pid)) + "/ns/net"}
}

// nameControlPlane has kube-proxy on the workers find the API server: the lab's image of it looks names up in /etc/hosts alone, which the kubelet
// copies from the node when the pod starts.
func nameControlPlane(t *testing.T, engine *kindcluster.Engine, cluster *kindcluster.Cluster) {
	t.Helper()
	const write = `for family in ahostsv4 ahostsv6; do getent $family "$1" | sed -n "1s/ .*/ $1/p" >>/etc/hosts; done`
	for _, w := range cluster.Workers {
		_, err := engine.Run(t.Context(), "exec", w.Name, "sh", "-c", write, "sh", cluster.Name+"-control-plane")
		require.NoError(t, err)
	}
	for _, argv := range [][]string{
		{"kubectl", "-n", "kube-system", "delete", "pod", "-l", "k8s-app=kube-proxy"},
		{"kubectl", "-n", "kube-system", "rollout", "status", "ds/kube-proxy", "--timeout=120s"},
	} {
		_, err := cluster.Administer(t.Context(), argv...)
		require.NoError(t, err)
	}
}
