package kindcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kplab/lab"
	"kplab/lab/thread"
)

// EngineChanges is what an engine of the lab changes on the machine while it runs.
const EngineChanges = "dockerd runs in a network namespace of its own, so that its bridges, its rules and its sysctls (ip_forward) are not the machine's, and go when it ends (kplab kind engine --stop). It has no way out of there: images come from kplab. Its containers are processes of this machine, in cgroups of its own"

// RuntimeVerb is the hidden command of the program by which it stands between dockerd and runc.
const RuntimeVerb = "oci-runtime"

// engineDeadline is for a machine whose unit is 1.
const engineDeadline = 60 * time.Second

// StartEngine starts a dockerd whose state, socket and log are in folder, beside whatever engine the user has, and waits until it
// answers, the longer the slower the machine is. program is this program's path. It outlives the caller. It has a network namespace of its own,
// with the loopback interface and what dockerd makes.
func StartEngine(ctx context.Context, folder, program string, slower lab.Deadlines) (*Engine, error) {
	dockerd, err := exec.LookPath("dockerd")
	if err != nil {
		return nil, fmt.Errorf("start an engine: %w: apt-get install docker.io", err)
	}
	if unix.Geteuid() != 0 {
		return nil, errors.New("start an engine: dockerd needs root: run kplab with sudo, or use an engine that runs already")
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	e := ownEngine(folder)
	config := map[string]any{
		"data-root": filepath.Join(folder, "data"), "exec-root": filepath.Join(folder, "exec"), "pidfile": pidFile(folder),
		"hosts": []string{e.host},
		// --privileged asks for every capability that there is, and a machine may lack one itself.
		"runtimes":        map[string]any{Prefix: map[string]any{"path": program, "runtimeArgs": []string{RuntimeVerb}}},
		"default-runtime": Prefix,
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(folder, configFile)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(folder, "dockerd.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(dockerd, "--config-file", file)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start dockerd: %w", err)
	}
	if err := loopbackUp(cmd.Process.Pid); err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with dockerd, or with this process
	ctx, cancel := context.WithTimeout(ctx, slower.Of(engineDeadline))
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := e.Run(ctx, "info"); err == nil {
			return e, nil
		}
		select {
		case err := <-ended:
			return nil, fmt.Errorf("dockerd ended: %w: %s", err, lastLines(log.Name()))
		case <-ctx.Done():
			return nil, fmt.Errorf("dockerd does not answer: %w: %s", context.Cause(ctx), lastLines(log.Name()))
		case <-tick.C:
		}
	}
}

// loopbackUp sets the loopback interface of a process's network namespace up.
func loopbackUp(pid int) error {
	t, err := thread.Join(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return err
	}
	defer t.Close()
	return t.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			return fmt.Errorf("loopback interface of dockerd: %w", err)
		}
		return nil
	})
}

// runningEngine is the process of the dockerd of a folder, 0 if none runs.
func runningEngine(folder string) (pid int, err error) {
	text, err := os.ReadFile(pidFile(folder))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		return 0, fmt.Errorf("%s: %w", pidFile(folder), err)
	}
	if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err != nil || !strings.Contains(string(line), filepath.Join(folder, configFile)) {
		return 0, os.Remove(pidFile(folder)) // another process has the number by now
	}
	return pid, nil
}

// EngineRuns reports whether the dockerd of the folder does.
func EngineRuns(folder string) (bool, error) {
	pid, err := runningEngine(folder)
	return pid != 0, err
}

// StopEngine ends the dockerd of the folder and waits until it is gone. It is no error if none runs.
func StopEngine(ctx context.Context, folder string) error {
	pid, err := runningEngine(folder)
	if err != nil || pid == 0 {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); errors.Is(err, syscall.ESRCH) {
		return os.Remove(pidFile(folder))
	} else if err != nil {
		return fmt.Errorf("stop dockerd, process %d: %w", pid, err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for syscall.Kill(pid, 0) == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("dockerd, process %d, has not ended: %w", pid, context.Cause(ctx))
		}
	}
	return nil
}

const configFile = "daemon.json"

func pidFile(folder string) string { return filepath.Join(folder, "dockerd.pid") }

func lastLines(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

// OCIRuntime does what runc does, after taking from the container's configuration the capabilities that this process does not have
// itself: runc refuses to start a container with more. It returns only on error.
func OCIRuntime(args []string) error {
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	for i, a := range args {
		var file string
		name, value, joined := strings.Cut(a, "=")
		if !joined && i+1 < len(args) {
			value = args[i+1]
		}
		switch name {
		case "--bundle", "-b":
			file = filepath.Join(value, "config.json")
		case "--process", "-p":
			file = value
		default:
			continue
		}
		if err := limitCapabilities(file); err != nil {
			return err
		}
	}
	return syscall.Exec(runc, append([]string{"runc"}, args...), os.Environ())
}

// limitCapabilities edits an OCI runtime configuration, or the process of one.
func limitCapabilities(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var config map[string]any
	numbers := json.NewDecoder(bytes.NewReader(text))
	numbers.UseNumber() // as they are: a float64 would round some
	if err := numbers.Decode(&config); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	process := config
	if p, ok := config["process"].(map[string]any); ok {
		process = p
	}
	sets, _ := process["capabilities"].(map[string]any)
	for name, set := range sets {
		list, _ := set.([]any)
		sets[name] = slices.DeleteFunc(list, func(c any) bool { return !hasCapability(c) })
	}
	if !hasCapability("CAP_SYS_RESOURCE") {
		delete(process, "rlimits") // raising one needs it
	}
	if text, err = json.Marshal(config); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// hasCapability reports whether a capability, by its name in an OCI configuration, is in this process's bounding set.
func hasCapability(name any) bool {
	n := slices.Index(capabilities, fmt.Sprint(name))
	if n < 0 {
		return true
	}
	set, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(n), 0, 0, 0)
	return err != nil || set == 1
}

// capabilities by number (linux/capability.h).
var capabilities = strings.Fields(`CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_FSETID CAP_KILL CAP_SETGID CAP_SETUID CAP_SETPCAP
	CAP_LINUX_IMMUTABLE CAP_NET_BIND_SERVICE CAP_NET_BROADCAST CAP_NET_ADMIN CAP_NET_RAW CAP_IPC_LOCK CAP_IPC_OWNER CAP_SYS_MODULE CAP_SYS_RAWIO
	CAP_SYS_CHROOT CAP_SYS_PTRACE CAP_SYS_PACCT CAP_SYS_ADMIN CAP_SYS_BOOT CAP_SYS_NICE CAP_SYS_RESOURCE CAP_SYS_TIME CAP_SYS_TTY_CONFIG CAP_MKNOD
	CAP_LEASE CAP_AUDIT_WRITE CAP_AUDIT_CONTROL CAP_SETFCAP CAP_MAC_OVERRIDE CAP_MAC_ADMIN CAP_SYSLOG CAP_WAKE_ALARM CAP_BLOCK_SUSPEND CAP_AUDIT_READ
	CAP_PERFMON CAP_BPF CAP_CHECKPOINT_RESTORE`)
