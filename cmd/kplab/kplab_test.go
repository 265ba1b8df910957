package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
	"kplab/lab/kubeproxy"
	"kplab/results"
)

// binary is kplab itself, built once: static, as `make build` builds it, since it is also a VM's init.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "kplab-test")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "kplab")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		panic(string(out))
	}
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

type ran struct {
	status         int
	stdout, stderr string
}

func kplab(t *testing.T, args ...string) ran {
	t.Helper()
	return kplabBehind(t, nil, args...)
}

// kplabBehind runs it by way of another command.
func kplabBehind(t *testing.T, before []string, args ...string) ran {
	t.Helper()
	argv := slices.Concat(before, []string{binary}, args)
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// needKubeProxy skips where no kube-proxy is at hand; `make test` obtains one first, and CI must not skip.
func needKubeProxy(t *testing.T) {
	t.Helper()
	root, err := cacheRoot("")
	require.NoError(t, err)
	for _, b := range kubeproxy.Cached(filepath.Join(root, "kube-proxy")) {
		if b.Version == lab.DefaultKubeProxy {
			return
		}
	}
	require.Empty(t, os.Getenv("CI"), "kube-proxy %s is not in the cache: make test obtains it", lab.DefaultKubeProxy)
	t.Skipf("kube-proxy %s is not in the cache: make test obtains it", lab.DefaultKubeProxy)
}

func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	broken := write("broken.txtar", "# It.\nprob c1 tcp svc/web\n")
	noPorts := write("no-ports.txtar", "# It.\napply a.yaml\n-- a.yaml --\napiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec:\n  sessionAfinity: None\n")
	matrix := write("matrix.yaml", "modus: [ipvs]\n")
	kubeconfig := write("kubeconfig", `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: staging, context: {cluster: c, user: u}}]
`)
	aRun, err := filepath.Abs("../../results/report/testdata/run")
	require.NoError(t, err)
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"mode", []string{"run", "--mode", "nftable"}, `unknown mode "nftable": did you mean "nftables"?`},
		{"scenario", []string{"run", "clusterip-basic"}, `unknown scenario "clusterip-basic": did you mean "clusterip-basics"?`},
		{"kernel", []string{"run", "--kernel", "debian-21"}, `"debian-21"`},
		{"version", []string{"run", "--kube-proxy", "1.37"}, "1.37"},
		{"userland", []string{"run", "--userland", "debian-10"}, `unknown userland "debian-10"`},
		{"substrate", []string{"run", "--substrate", "docker"}, `unknown substrate "docker"`},
		{"flag", []string{"run", "--modes", "ipvs"}, "unknown flag: --modes (see kplab run --help)"},
		{"verb", []string{"rum"}, `unknown command "rum"`},
		{"parallel", []string{"run", "-j", "-1"}, "-1 cells at once: expected 1 or more, or 0 for as many as keep a machine busy"},
		{"repeat", []string{"run", "--repeat", "0"}, "each cell 0 times: expected 1 or more"},
		{"repeat too often", []string{"run", "--repeat", "1000"}, "each cell 1000 times: expected 1 to 999"},
		{"selftest of an unknown scenario", []string{"selftest", "clusterip-basic"}, `unknown scenario "clusterip-basic": did you mean "clusterip-basics"?`},
		{"ledger of nothing", []string{"ledger"}, "requires at least 1 arg(s)"},
		{"ledger of no run", []string{"ledger", dir}, dir + " holds no run"},
		{"ledger's format", []string{"ledger", dir, "--format", "markdwn"}, `unknown format "markdwn": did you mean "markdown"?`},
		{"shard", []string{"run", "--shard", "3/2"}, `shard "3/2": expected I/N`},
		{"report of nothing", []string{"report", "-o", "x"}, "requires at least 1 arg(s)"},
		{"report to nowhere", []string{"report", dir}, "give a folder with -o DIR"},
		{"report of no run", []string{"report", dir, "-o", "x"}, dir + " holds no run"},
		{"report over other files", []string{"report", aRun, "-o", dir}, dir + " holds files that are no report"},
		{"compare of one", []string{"compare", dir}, "accepts 2 arg(s), received 1"},
		{"compare of no run", []string{"compare", dir, dir}, dir + " holds no run"},
		{"compare's format", []string{"compare", dir, dir, "--format", "htm"}, `unknown format "htm": did you mean "html"?`},
		{"compare's change", []string{"compare", dir, dir, "--min-change", "-1"}, "--min-change -1: expected 0 or more"},
		{"merge to nowhere", []string{"merge", dir}, "give a folder with -o DIR"},
		{"merge of no run", []string{"merge", dir, "-o", "x"}, dir + " holds no run"},
		{"merge into a run", []string{"merge", aRun, "-o", aRun}, "already holds a run"},
		{"script", []string{"run", broken}, broken + `:2: unknown command "prob": did you mean "probe"?`},
		{"manifest", []string{"run", noPorts}, noPorts + ":9: "},
		{"matrix file", []string{"run", "-f", matrix}, `unknown field "modus"`},
		{"matrix file absent", []string{"run", "-f", filepath.Join(dir, "none.yaml")}, "no such file"},
		{"repro of many cells", []string{"repro", "clusterip-basics", "--mode", "ipvs,nftables"}, "these flags name 2 cells"},
		{"cluster's flags", []string{"run", "--context", "staging"}, "--context goes with --substrate cluster"},
		{"cluster beside others", []string{"run", "--substrate", "netns,cluster"}, "--substrate cluster goes without it"},
		{"cluster's kernel", []string{"run", "--substrate", "cluster", "--kernel", "debian-12"}, "--kernel debian-12: a cluster that exists has its kernel"},
		{"cluster's nodes", []string{"run", "--substrate", "cluster", "--node-image", "x"}, "--node-image is for clusters that the lab makes"},
		{"no cluster", []string{"run", "--substrate", "cluster", "--kubeconfig", filepath.Join(dir, "none.conf")}, "no such file"},
		{"unknown context", []string{"run", "--substrate", "cluster", "--kubeconfig", kubeconfig, "--context", "stagin"}, `unknown context "stagin": did you mean "staging"?`},
		{"scenario for no cluster in use", []string{"run", "mode-unset", "--substrate", "cluster", "--kubeconfig", kubeconfig}, "scenario mode-unset is not for a cluster in use: mode-unset.txtar:"},
		{"selftest of a cluster", []string{"selftest", "--substrate", "cluster"}, "a cluster that is in use is not broken on purpose"},
		{"shell in a cluster", []string{"run", "--substrate", "cluster", "--keep"}, "a node that is in use is left alone"},
		{"clean of no cluster", []string{"clean", "--kubeconfig", kubeconfig, "--context", "prod"}, `unknown context "prod"`},
		{"bench of the unknown", []string{"bench", "synch"}, `unknown benchmark "synch": did you mean "sync"?`},
		{"bench's mode", []string{"bench", "--mode", "nftable"}, `unknown mode "nftable": did you mean "nftables"?`},
		{"bench's Services", []string{"bench", "--services", "0"}, "0 Services: expected 1 to 60000"},
		{"bench's count", []string{"bench", "--count", "0"}, "each trial 0 times: expected 1 to 1000"},
		{"bench on kind", []string{"bench", "--substrate", "kind"}, "unknown flag: --substrate"},
		{"repro of nothing", []string{"repro"}, "which scenario?"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := kplab(t, tc.args...)
			assert.Equal(t, exitUsage, r.status)
			assert.Contains(t, r.stderr, tc.want)
			assert.NotContains(t, r.stderr, "goroutine", "a panic")
			assert.Empty(t, r.stdout)
		})
	}
}

func TestVerbsThatRunNothing(t *testing.T) {
	r := kplab(t, "list")
	assert.Zero(t, r.status)
	assert.Contains(t, r.stdout, "nodeport-localhost")
	r = kplab(t, "show", "commands")
	assert.Contains(t, r.stdout, "probe [-4|-6|-46] FROM")
	r = kplab(t, "show", "clusterip-basics")
	assert.True(t, strings.HasPrefix(r.stdout, "# ClusterIP and NodePort"))
	assert.Contains(t, kplab(t, "completion", "bash").stdout, "kplab")
	assert.Contains(t, kplab(t, "run", "--help").stdout, "--kernel")
}

// passing runs cells that must all pass, and returns the run.
func passing(t *testing.T, args ...string) (run results.Run) {
	t.Helper()
	r := kplab(t, append(args, "--json")...)
	require.Zero(t, r.status, "%s\n%s", r.stdout, r.stderr)
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &run))
	for _, c := range run.Cells {
		assert.Equal(t, lab.Pass, c.Verdict, "%s: %s", c.ID(), c.Reason)
		assert.NotEmpty(t, c.Checks, c.ID())
	}
	return run
}

// TestHostKernel is the canary on the kernel that the tests run on.
func TestHostKernel(t *testing.T) {
	needKubeProxy(t)
	out := filepath.Join(t.TempDir(), "out")
	run := passing(t, "run", "clusterip-basics", "nodeport-secondary-address", "--mode", "iptables,nftables", "--kernel", "host", "--out", out)
	require.Len(t, run.Cells, 4)
	for _, c := range run.Cells {
		for _, path := range c.Evidence {
			assert.FileExists(t, filepath.Join(out, path))
		}
	}
	for _, name := range []string{"run.json", "matrix.md", "ledger.md", "junit.xml"} {
		assert.FileExists(t, filepath.Join(out, name))
	}
	again := kplab(t, "run", "clusterip-basics", "--kernel", "host", "--mode", "nftables", "--out", out)
	assert.NotZero(t, again.status, "a folder that holds a run is not overwritten")
	assert.Contains(t, again.stderr, "already holds a run")
}

// TestGaps switches modes under traffic, and finds in run.json what the traffic met and what was left over.
func TestGaps(t *testing.T) {
	needKubeProxy(t)
	run := passing(t, "run", "mode-switch.iptables.restart", "--mode", "iptables,nftables", "--kernel", "host", "--out", filepath.Join(t.TempDir(), "out"))
	require.Len(t, run.Cells, 2)
	for _, c := range run.Cells {
		var switched []lab.Gap
		datagrams := map[string]lab.Gap{}
		for _, g := range c.Gaps {
			switch {
			case g.During == lab.BeforeAnyChange:
			case g.Kind == "":
				switched = append(switched, g)
			default:
				datagrams[g.Kind] = g
			}
		}
		for _, kind := range []string{lab.UDPRequests, lab.UDPOneWay} {
			assert.Positive(t, datagrams[kind].Attempts, kind)
			assert.NotEmpty(t, datagrams[kind].Endpoints, kind)
		}
		require.Len(t, c.Survivors, 2)
		assert.Equal(t, []lab.Traffic{"", lab.Push}, []lab.Traffic{c.Survivors[0].Traffic, c.Survivors[1].Traffic}, "idle ones, and ones in use")
		require.Len(t, c.States, 2)
		left := c.States[1].Leftovers
		require.NotNil(t, left)
		assert.Equal(t, c.Mode == lab.NFTables, len(left.Holds.IPTables) > 0, "iptables mode's KUBE-FIREWALL stays: %+v", left)
		for _, f := range c.States[1].Foreign {
			assert.True(t, f.Kept, "%+v", f)
		}
		require.Len(t, switched, 2, "from outside and from a pod")
		for _, g := range switched {
			assert.Positive(t, g.Attempts)
			assert.False(t, g.Open)
			assert.Equal(t, c.Mode == lab.NFTables, g.Failed > 0, "%s, %s: %+v", c.Mode, g.Traffic, g)
		}
	}
}

// TestVM boots a Debian kernel and runs the cells that only it can run.
func TestVM(t *testing.T) {
	if os.Getenv("KPLAB_TEST_VM") == "" {
		t.Skip("boots a VM, which takes a minute without KVM: set KPLAB_TEST_VM=1 (make test does)")
	}
	needKubeProxy(t)
	out := filepath.Join(t.TempDir(), "out")
	run := passing(t, "run", "clusterip-basics", "stale-kube-ipvs0", "--mode", "ipvs,nftables", "--kernel", "debian-12", "--out", out)
	require.Len(t, run.Cells, 4)
	for _, c := range run.Cells {
		assert.True(t, strings.HasPrefix(c.Kernel.Release, "6.1."), c.Kernel.Release)
	}
}
