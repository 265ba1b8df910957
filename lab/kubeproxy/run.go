package kubeproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"kplab/lab"
)

// run is one kube-proxy process, or one that was.
type run struct {
	node    string
	title   string // "1.37.2 nftables"
	version string
	began   time.Time
	process *os.Process
	pid     int
	log     *logFile
	address string // of its metrics server
	client  *http.Client

	done  chan struct{}    // closed when the process is gone
	state *os.ProcessState // valid once done is closed

	tracker *tracker
	config  []byte        // its KubeProxyConfiguration
	within  time.Duration // how long a sync may take on the reference machine

	mu    sync.Mutex
	asked bool // somebody wants it to end
	told  bool // its unexpected end was returned to a caller
}

// start starts a kube-proxy with the arguments. environment adds to what the host gives it.
func start(h Host, title, version, binary string, environment []string, args ...string) (*run, error) {
	r := &run{node: h.Name(), title: title, version: version, done: make(chan struct{})}
	var err error
	if r.log, err = newLogFile("kube-proxy-" + h.Name()); err != nil {
		return nil, err
	}
	// It outlives the context of whoever starts it.
	cmd := h.Command(context.Background(), append([]string{binary}, args...)...)
	cmd.Env = append(cmd.Environ(), "TZ=UTC") // so that the log's times can be compared with the metrics'
	cmd.Env = append(cmd.Env, environment...)
	cmd.Stdout, cmd.Stderr = r.log.file, r.log.file
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	r.began = time.Now()
	if err := h.Start(cmd); err != nil {
		r.log.close()
		return nil, fmt.Errorf("%s: start kube-proxy %s: %w", h.Name(), title, err)
	}
	r.process, r.pid = cmd.Process, cmd.Process.Pid
	r.client = &http.Client{Transport: &http.Transport{DialContext: h.Dial, DisableCompression: true}}
	go r.wait(cmd) // ends with the process
	return r, nil
}

func (r *run) wait(cmd *exec.Cmd) {
	_ = cmd.Wait() // its error is the state
	r.state = cmd.ProcessState
	r.log.close()
	r.client.CloseIdleConnections()
	close(r.done)
}

// header is the line of the node's log that tells the processes apart.
func (r *run) header() string {
	return fmt.Sprintf("==== %s: kube-proxy %s, pid %d, started %s\n", r.node, r.title, r.pid, r.began.UTC().Format(time.RFC3339Nano))
}

// ended reports whether the process is gone.
func (r *run) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// exit is how the process ended. It must be gone.
func (r *run) exit() *lab.ProxyExit {
	log := r.log.from(0)
	e := &lab.ProxyExit{Node: r.node, Code: r.state.ExitCode(), Log: log, Last: ExitReason(log)}
	if status, ok := r.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.Last = r.state.String() + " (last logged: " + e.Last + ")"
	}
	return e
}

// unexpected returns how the process ended if nobody had asked for it and nobody has been told yet. Telling is final if
// telling is set.
func (r *run) unexpected(telling bool) error {
	if !r.ended() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked || r.told {
		return nil
	}
	r.told = telling
	return r.exit()
}

// endedWhileWaiting is what a caller that needs the process is told.
func (r *run) endedWhileWaiting() error {
	if err := r.unexpected(true); err != nil {
		return err
	}
	return fmt.Errorf("%s: kube-proxy was ended or has ended before", r.node)
}

// end sends the process a signal, SIGKILL after the grace period, and returns when it and its children are gone.
func (r *run) end(ctx context.Context, sig syscall.Signal, grace time.Duration) error {
	if err := r.unexpected(true); err != nil {
		return err
	}
	r.mu.Lock()
	r.asked = true
	r.mu.Unlock()
	if r.ended() {
		return nil
	}
	_ = r.process.Signal(sig) // an error means that it has just ended
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
		_ = r.process.Kill()
	case <-ctx.Done():
		_ = r.process.Kill()
	}
	<-r.done // SIGKILL cannot be refused
	return r.endChildren(ctx)
}

// endChildren ends the tools that kube-proxy had at work (nft, iptables-restore, ...), as the end of its container would:
// none may write rules after kube-proxy is said to be gone.
func (r *run) endChildren(ctx context.Context) error {
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for {
		if err := syscall.Kill(-r.pid, syscall.SIGKILL); errors.Is(err, syscall.ESRCH) || !groupAlive(r.pid) {
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: children of kube-proxy are still there after its end: %w", r.node, context.Cause(ctx))
		}
	}
}

// groupAlive reports whether a process group has a member that is not a zombie: nobody may be there to reap orphans.
func groupAlive(group int) bool {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	for _, p := range procs {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + p.Name() + "/stat")
		if err != nil {
			continue
		}
		// "pid (comm) state ppid pgrp ...", where comm may contain anything.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 2 && fields[2] == strconv.Itoa(group) && fields[0] != "Z" && fields[0] != "X" {
			return true
		}
	}
	return false
}

// get asks the process's metrics server.
func (r *run) get(ctx context.Context, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.address+path, nil)
	if err != nil {
		return "", err
	}
	response, err := r.client.Do(request)
	if err != nil {
		return "", fmt.Errorf("%s: %w", r.node, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", fmt.Errorf("%s: read kube-proxy's %s: %w", r.node, path, err)
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: kube-proxy's %s: %s", r.node, path, response.Status)
	}
	return string(body), nil
}

// metrics scrapes the process.
func (r *run) metrics(ctx context.Context) (*Metrics, error) {
	text, err := r.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	return ParseMetrics(text)
}

// syncMetrics reads what readState needs, and little else: rendering and parsing all takes longer than many a sync.
func (r *run) syncMetrics(ctx context.Context) (*Metrics, error) {
	text, err := r.get(ctx, "/metrics?"+url.Values{"name[]": stateMetrics}.Encode()) // 1.37 and later heed the names
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, statePrefix) || strings.HasPrefix(line, "# TYPE "+statePrefix) {
			b.WriteString(line)
		}
	}
	return ParseMetrics(b.String())
}
