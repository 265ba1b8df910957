package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab/plan"
)

// kills is how often the run is killed; KPLAB_TEST_KILLS says otherwise (100 is the target that design sets).
const kills = 10

// TestKillLeavesNothing kills kplab at random moments of a run, and what it had made must be gone.
func TestKillLeavesNothing(t *testing.T) {
	needKubeProxy(t)
	n := kills
	if s := os.Getenv("KPLAB_TEST_KILLS"); s != "" {
		_, err := fmt.Sscan(s, &n)
		require.NoError(t, err)
	}
	temps := tempFiles(t)
	for i := range n {
		moment := time.Duration(rand.Int64N(int64(3 * time.Second)))
		t.Run(fmt.Sprintf("%02d after %v", i, moment.Round(time.Millisecond)), func(t *testing.T) {
			cmd := exec.Command(binary, "run", "clusterip-basics", "--mode", "iptables,nftables", "--kernel", plan.Host, "--out", filepath.Join(t.TempDir(), "out"))
			cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
			require.NoError(t, cmd.Start())
			kill := time.NewTimer(moment)
			defer kill.Stop()
			look := time.NewTicker(20 * time.Millisecond)
			defer look.Stop()
			made := footprint{}
			for killed := false; !killed; {
				select {
				case <-look.C:
					made.add(cmd.Process.Pid)
				case <-kill.C:
					made.add(cmd.Process.Pid)
					require.NoError(t, cmd.Process.Kill())
					killed = true
				}
			}
			_ = cmd.Wait()
			assert.Eventually(t, func() bool { return len(made.left()) == 0 }, 20*time.Second, 20*time.Millisecond, "left: %v", made.left())
		})
	}
	assert.ElementsMatch(t, temps, tempFiles(t), "temporary files")
}

// footprint is what a process and its descendants were seen to hold.
type footprint struct {
	processes  map[string]bool // pid and start time
	namespaces map[string]bool // "net:[4026532000]"
}

// add looks at a process and all its descendants. Its own namespaces are this process's too and do not count.
func (f *footprint) add(root int) {
	if f.processes == nil {
		f.processes, f.namespaces = map[string]bool{}, map[string]bool{}
	}
	children := map[int][]int{}
	starts := map[int]string{}
	for _, p := range processes() {
		children[p.parent] = append(children[p.parent], p.pid)
		starts[p.pid] = p.start
	}
	for queue := children[root]; len(queue) > 0; queue = queue[1:] {
		pid := queue[0]
		queue = append(queue, children[pid]...)
		f.processes[fmt.Sprintf("%d started %s", pid, starts[pid])] = true
		for _, ns := range namespaces(pid) {
			f.namespaces[ns] = true
		}
	}
	for _, ns := range namespaces(os.Getpid()) {
		delete(f.namespaces, ns)
	}
}

// left lists what of it is still there, in any process.
func (f *footprint) left() (left []string) {
	for _, p := range processes() {
		if id := fmt.Sprintf("%d started %s", p.pid, p.start); f.processes[id] && p.state != "Z" {
			left = append(left, id)
		}
		for _, ns := range namespaces(p.pid) {
			if f.namespaces[ns] {
				left = append(left, fmt.Sprintf("%s in %d", ns, p.pid))
			}
		}
	}
	return left
}

type process struct {
	pid, parent  int
	state, start string
}

// processes reads /proc/*/stat (proc(5)).
func processes() (all []process) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		end := strings.LastIndexByte(string(text), ')')
		fields := strings.Fields(string(text)[end+1:])
		if len(fields) < 20 {
			continue
		}
		p := process{state: fields[0], start: fields[19]}
		fmt.Sscan(string(text), &p.pid)
		fmt.Sscan(fields[1], &p.parent)
		all = append(all, p)
	}
	return all
}

// namespaces lists the network and mount namespaces of a process's threads.
func namespaces(pid int) (found []string) {
	for _, kind := range []string{"net", "mnt"} {
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/ns/%s", pid, kind))
		for _, link := range links {
			if ns, err := os.Readlink(link); err == nil {
				found = append(found, ns)
			}
		}
	}
	return found
}

func tempFiles(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(os.TempDir(), "kplab*"))
	require.NoError(t, err)
	return found
}

// TestInterruptKeepsResults ends a run with SIGINT: it exits by itself, with what it has.
func TestInterruptKeepsResults(t *testing.T) {
	needKubeProxy(t)
	out := filepath.Join(t.TempDir(), "out")
	cmd := exec.Command(binary, "run", "--mode", "iptables,nftables", "--kernel", plan.Host, "--out", out, "-j", "1")
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	// The first line is the machine's; the second says that a cell has ended.
	buf, seen := make([]byte, 4096), ""
	for strings.Count(seen, "\n") < 2 {
		n, err := stderr.Read(buf)
		require.NoError(t, err, seen)
		seen += string(buf[:n])
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	_, _ = io.Copy(io.Discard, stderr)
	_ = cmd.Wait()
	assert.Equal(t, 3, cmd.ProcessState.ExitCode(), "what did not run is an error")
	run, err := os.ReadFile(filepath.Join(out, "run.json"))
	require.NoError(t, err)
	assert.Contains(t, string(run), `"verdict": "pass"`)
	assert.Contains(t, string(run), "interrupted by signal")
}
