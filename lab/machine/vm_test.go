package machine

import (
	"crypto/sha256"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
)

// needVM skips tests that boot guests unless they were asked for, and returns the cache that they use.
func needVM(t *testing.T) Cache {
	t.Helper()
	if os.Getenv("KPLAB_TEST_VM") == "" {
		t.Skip("boots VMs: set KPLAB_TEST_VM=1 and CGO_ENABLED=0")
	}
	root, err := DefaultCacheRoot()
	require.NoError(t, err)
	return Cache{Root: root, Progress: func(l string) { t.Log(l) }}
}

func newVM(t *testing.T, kernel, userland string) (*VM, lab.Job) {
	t.Helper()
	c := needVM(t)
	k, err := c.Kernel(t.Context(), kernel)
	require.NoError(t, err)
	root, err := c.Userland(t.Context(), userland)
	require.NoError(t, err)
	return &VM{Kernel: k, Accelerator: AcceleratorTCG}, lab.Job{Root: root}
}

func TestVMBoots(t *testing.T) {
	for _, tt := range []struct {
		kernel, userland, release string
		rolls                     bool // its suite drops versions: what is there today may be gone tomorrow
	}{
		{"debian-11", "debian-12", "5.10.", false},
		{"debian-12", "debian-12", "6.1.", false},
		{"debian-13", "debian-13", "6.12.", false},
		{"trixie-backports:6.18", "debian-12", "6.18.", true},
		{"sid:7.2", "debian-13", "7.2.", true},
		{"trixie-backports", "debian-12", "7.", true},
	} {
		t.Run(tt.kernel, func(t *testing.T) {
			if tt.rolls && os.Getenv("KPLAB_TEST_VM") != "all" {
				t.Skip("the mirror may have dropped this version: set KPLAB_TEST_VM=all")
			}
			vm, job := newVM(t, tt.kernel, tt.userland)
			start := time.Now()
			events, err := do(t, vm, job, "look", "nft")
			took := time.Since(start)
			require.NoError(t, err, strings.Join(said(events, lab.EventLog), "\n"))
			var m *lab.Machine
			for _, e := range events {
				if e.Type == lab.EventReady {
					m = e.Machine
				}
			}
			require.NotNil(t, m)
			t.Logf("ready after %d ms, gone after %v: %+v", m.BootMs, took, *m)
			t.Log(said(events, lab.EventLog))
			assert.True(t, strings.HasPrefix(m.Release, tt.release), m.Release)
			for _, f := range []string{"ip_vs", "nf_tables", "dummy", "nfnetlink_acct", "ip_set", "sctp", "bridge", "veth", "netem", "nft_numgen", "nft_fib", "conntrack", "ipv6", "nft_compat"} {
				assert.True(t, m.Features[f], f)
			}
			assert.NotEmpty(t, m.Tools["ipvsadm"])
			assert.Contains(t, strings.Join(said(events, lab.EventStep), "\n"), "table ip t")
		})
	}
}

// A guest whose root is a disk finds its userland and its modules beside it, and leaves the disk as it was.
func TestVMDisk(t *testing.T) {
	vm, job := newVM(t, "debian-12", "debian-12")
	mkfs, err := exec.LookPath("mkfs.ext4")
	require.NoError(t, err, "apt-get install e2fsprogs")
	vm.Disk = filepath.Join(t.TempDir(), "disk,1.ext4")
	out, err := exec.Command(mkfs, "-q", "-O", "^has_journal", "-d", job.Root, vm.Disk, "512M").CombinedOutput()
	require.NoError(t, err, "%s", out)
	sum := func() [sha256.Size]byte {
		content, err := os.ReadFile(vm.Disk)
		require.NoError(t, err)
		return sha256.Sum256(content)
	}
	before := sum()
	events, err := do(t, vm, job, "disk", "nft")
	require.NoError(t, err, strings.Join(said(events, lab.EventLog), "\n"))
	steps := strings.Join(said(events, lab.EventStep), "\n")
	assert.Contains(t, steps, "ext4=true")
	assert.Contains(t, steps, "table ip t", "the kernel loads nf_tables for the userland's nft")
	assert.Equal(t, before, sum())
}

func TestVMFailures(t *testing.T) {
	for _, tt := range []struct {
		name, act string
		memory    int
		contains  []string
	}{
		{name: "handler's error", act: "refuse", contains: []string{"the job makes no sense"}},
		{name: "panic", act: "panic", contains: []string{"kernel panic", "sysrq", "while it ran"}},
		{name: "hang", act: "stop", contains: []string{"it hangs", "while it ran"}},
		{name: "out of memory", act: "hog", memory: 256, contains: []string{"out of memory", "while it ran"}},
		{name: "killed", act: "die", contains: []string{"signal 9", "farewell"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			vm, job := newVM(t, "debian-12", "debian-12")
			vm.Memory = tt.memory
			vm.silence = 30 * time.Second
			events, err := do(t, vm, job, "look", tt.act)
			require.Error(t, err)
			t.Log(err)
			for _, c := range tt.contains {
				assert.ErrorContains(t, err, c)
			}
			assert.Contains(t, types(events), lab.EventEnd, "results so far are kept")
			assert.NotContains(t, types(events), lab.EventDone)
		})
	}
}

func TestVMBootsAgainOnce(t *testing.T) {
	vm, job := newVM(t, "debian-12", "debian-12")
	broken := filepath.Join(t.TempDir(), "vmlinuz")
	require.NoError(t, os.WriteFile(broken, []byte("no kernel"), 0o600))
	vm.Kernel.Image = broken
	events, err := do(t, vm, job, "look")
	require.ErrorIs(t, err, errGuest)
	require.Len(t, said(events, lab.EventLog), 1)
	assert.Contains(t, said(events, lab.EventLog)[0], "once more")
}

func TestTrial(t *testing.T) {
	vm, _ := newVM(t, "debian-12", "debian-12")
	require.NoError(t, trial(t.Context(), vm, time.Minute))
	broken := filepath.Join(t.TempDir(), "vmlinuz")
	require.NoError(t, os.WriteFile(broken, []byte("no kernel"), 0o600))
	vm.Kernel.Image = broken
	require.ErrorIs(t, trial(t.Context(), vm, time.Minute), errGuest)
}

func TestCommandLine(t *testing.T) {
	for arch, console := range map[string]string{"amd64": "console=ttyS0 ", "arm64": "console=ttyAMA0 "} {
		p, err := platformOf(arch)
		require.NoError(t, err)
		line := new(VM).commandLine(p, guestArg)
		assert.True(t, strings.HasPrefix(line, console), line)
		assert.True(t, strings.HasSuffix(line, " -- "+guestArg), line)
		assert.Equal(t, arch == "amd64", strings.Contains(line, "tsc="), line)
		assert.Contains(t, line, " cgroup_disable=memory ")
		assert.NotContains(t, (&VM{Disk: "disk"}).commandLine(p, guestArg), "cgroup_disable", "containers have limits of memory")
	}
	_, err := platformOf("riscv64")
	require.Error(t, err)
}

func TestVMNeedsAUserland(t *testing.T) {
	err := (&VM{}).Run(t.Context(), lab.Job{Root: "/"}, func(lab.Event) {})
	require.EqualError(t, err, "a VM cannot take the host's userland along: choose one of debian-12, debian-13")
}
