package machine

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
)

// parentArg is Args[0] of a process of this test binary that runs a job which hangs, so that it can be killed.
const parentArg = "kplab-test-parent"

// parent runs a runner and reports on standard output what comes.
func parent(kind string) {
	var runner lab.Runner
	var job lab.Job
	switch kind {
	case "sandbox":
		runner = &Sandbox{}
		job.Cells = []lab.Cell{{Scenario: "hang"}}
	case "look":
		runner = &Sandbox{}
		job.Cells = []lab.Cell{{Scenario: "look"}, {Scenario: "orphans"}}
	case "vm":
		root, _ := DefaultCacheRoot()
		c := Cache{Root: root}
		k, err := c.Kernel(context.Background(), "debian-12")
		if err == nil {
			job.Root, err = c.Userland(context.Background(), "debian-12")
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		runner = &VM{Kernel: k, Accelerator: AcceleratorTCG}
		job.Cells = []lab.Cell{{Scenario: "hang"}}
	}
	err := runner.Run(context.Background(), job, func(e lab.Event) { fmt.Println(e.Type, e.Message) })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func parentCommand(kind string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", kind)
	cmd.Args[0] = parentArg
	cmd.Stderr = os.Stderr
	return cmd
}

// children returns the processes below pid.
func children(pid int) []int {
	var all []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, t := range tasks {
		b, _ := os.ReadFile(t)
		for _, f := range strings.Fields(string(b)) {
			if c, err := strconv.Atoi(f); err == nil {
				all = append(append(all, c), children(c)...)
			}
		}
	}
	return all
}

// gone reports whether all of the processes have ended.
func gone(pids []int) bool {
	return !slices.ContainsFunc(pids, func(p int) bool { return syscall.Kill(p, 0) == nil })
}

// killWhen kills a parent as soon as it prints a line with text in it, and reports whether all below it ended.
func killWhen(t *testing.T, kind, text string) {
	t.Helper()
	cmd := parentCommand(kind)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for s := bufio.NewScanner(out); s.Scan() && !strings.Contains(s.Text(), text); {
	}
	below := children(cmd.Process.Pid)
	require.NotEmpty(t, below)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	assert.Eventually(t, func() bool { return gone(below) }, 20*time.Second, 10*time.Millisecond, "of %v some still live", below)
}

func TestSandboxEndsWithItsKilledParent(t *testing.T) { killWhen(t, "sandbox", "hanging") }

func TestVMEndsWithItsKilledParent(t *testing.T) {
	needVM(t)
	t.Run("running", func(t *testing.T) { killWhen(t, "vm", "hanging") })
	t.Run("booting", func(t *testing.T) {
		cmd := parentCommand("vm")
		require.NoError(t, cmd.Start())
		var below []int
		require.Eventually(t, func() bool { below = children(cmd.Process.Pid); return len(below) > 0 }, 20*time.Second, time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		assert.Eventually(t, func() bool { return gone(below) }, 20*time.Second, 10*time.Millisecond)
	})
}

// TestSandboxEndsAtAnyMoment kills parents at random moments of a sandbox's life and looks for processes in namespaces not ours.
func TestSandboxEndsAtAnyMoment(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while")
	}
	for range 20 {
		cmd := parentCommand("sandbox")
		require.NoError(t, cmd.Start())
		moment := time.NewTimer(time.Duration(rand.IntN(400)) * time.Millisecond)
		<-moment.C
		below := children(cmd.Process.Pid)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		assert.Eventually(t, func() bool { return gone(below) }, 20*time.Second, 10*time.Millisecond, "of %v some still live", below)
	}
	assert.Eventually(t, func() bool { return len(ours(t)) == 0 }, 20*time.Second, 10*time.Millisecond, "stages or agents whose runner is gone")
}

// ours finds processes that call themselves stages of a machine and have no living runner above them.
func ours(t *testing.T) []string {
	t.Helper()
	var found []string
	cmdlines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	exe, err := os.Readlink("/proc/self/exe")
	require.NoError(t, err)
	for _, c := range cmdlines {
		b, err := os.ReadFile(c)
		if err != nil {
			continue
		}
		name, _, _ := strings.Cut(string(b), "\x00")
		target, _ := os.Readlink(filepath.Join(filepath.Dir(c), "exe"))
		if (name == sandboxArg || name == agentArg) && target == exe {
			found = append(found, filepath.Dir(c))
		}
	}
	return found
}

func TestSandboxAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("every sandbox of this user is one")
	}
	const nobody = 65534
	cmd := parentCommand("look")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	cmd.Stderr = nil
	out, err := cmd.Output()
	var stderr string
	if status, ok := err.(*exec.ExitError); ok {
		stderr = string(status.Stderr)
	}
	require.NoError(t, err, stderr)
	assert.Contains(t, string(out), "uid=0")
	assert.Contains(t, string(out), "done")
}
