package bench

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"kplab/lab"
	"kplab/lab/agent"
	"kplab/lab/kubeproxy"
	"kplab/lab/machine"
	"kplab/netns"
	"kplab/results"
	"kplab/scenarios"
)

// job is one cell of the canary, with what the cache holds; make run and make test fill it.
func job(b *testing.B, mode lab.Mode) lab.Job {
	b.Helper()
	root := os.Getenv("KPLAB_CACHE")
	if root == "" {
		var err error
		root, err = machine.DefaultCacheRoot()
		require.NoError(b, err)
	}
	userland, err := machine.Cache{Root: root}.Userland(b.Context(), lab.DefaultUserland)
	require.NoError(b, err)
	proxy, err := (&kubeproxy.Source{Cache: filepath.Join(root, "kube-proxy")}).Obtain(b.Context(), lab.DefaultKubeProxy)
	require.NoError(b, err)
	all, err := scenarios.Select([]string{"clusterip-basics"})
	require.NoError(b, err)
	return lab.Job{
		Cells: []lab.Cell{{
			Scenario: all[0].Name, Mode: mode, KubeProxy: proxy.Version, Substrate: lab.DefaultSubstrate,
			Kernel: lab.Kernel{Name: machine.KernelHost}, Userland: lab.Userland{Name: lab.DefaultUserland},
		}},
		Scenarios:   map[string]lab.Source{all[0].Name: {File: all[0].File, Text: all[0].Text}},
		KubeProxies: map[string]string{proxy.Version: proxy.Path},
		Root:        userland, Parallel: 1, Accelerator: machine.AcceleratorHost,
	}
}

// BenchmarkCell runs the canary: env, two kube-proxies, some fifty probes, evidence, end.
func BenchmarkCell(b *testing.B) {
	for _, mode := range []lab.Mode{lab.IPTables, lab.NFTables} {
		b.Run("mode="+string(mode), func(b *testing.B) {
			job := job(b, mode)
			a := agent.Agent{NewEnv: netns.New}
			// Unit only lengthens deadlines.
			m := lab.Machine{Release: results.ThisHost().Kernel, Unit: 5, Features: machine.Features()}
			for b.Loop() {
				err := a.Run(b.Context(), job, m, func(e lab.Event) {
					if e.Result != nil {
						require.Equal(b, lab.Pass, e.Result.Verdict, e.Result.Reason)
					}
				})
				require.NoError(b, err)
			}
		})
	}
}

// BenchmarkEnv makes and closes the standard env: ten namespaces, their links, the API server.
func BenchmarkEnv(b *testing.B) {
	job := job(b, lab.NFTables)
	for b.Loop() {
		env, err := netns.New(b.Context(), job, job.Cells[0], lab.Machine{Unit: 5})
		require.NoError(b, err)
		require.NoError(b, env.Close())
	}
}
