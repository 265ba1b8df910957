package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"kplab/lab"
)

// VM runs a job on another kernel: in a QEMU guest whose root file system is the job's userland, with the kernel's modules and the
// job's kube-proxies in it, and whose init is this binary. It has no network, and no disk unless one is given; job and events pass over a virtio-serial
// port, and the console is kept to say how it ended. QEMU ends with this process.
type VM struct {
	Kernel Kernel
	// Accelerator is [AcceleratorKVM] or [AcceleratorTCG]; [Cache.Accelerator] finds out which works.
	Accelerator string
	// Memory in MiB; 0 means 3072, on top of which come the files the guest holds in memory.
	Memory int
	// CPUs; 0 means 2.
	CPUs int
	// Disk is the path of an ext4 file system that is the guest's root in the userland's place, which is then at [DiskUserland]. What
	// the guest writes ends with it. "" for none.
	Disk string

	// silence is how long a guest may send nothing at all; 0 means what fits the accelerator.
	silence time.Duration
}

var _ lab.Runner = (*VM)(nil)

// emulatedParallel is how many cells keep an emulated guest busy: they wait for deadlines that are scaled to it. Two at a time used 85 % of its
// cores, three 97 %.
const emulatedParallel = lab.DefaultParallel + 1

// Run boots a guest, gives it the job and returns when it is gone. The job's paths are this machine's; the guest gets its own.
// A guest that fails before it is ready is booted once more, and an [lab.EventLog] says so. An error of a guest that was
// ready says what happened (panic, out of memory, silence) with the console's last lines; it has already sent what it came to.
func (v *VM) Run(ctx context.Context, job lab.Job, emit func(lab.Event)) error {
	emit = serialise(emit)
	if job.Root == "" || job.Root == "/" {
		return errors.New("a VM cannot take the host's userland along: choose one of " + strings.Join(UserlandNames()[:len(UserlandNames())-1], ", "))
	}
	binary, err := ownBinary()
	if err != nil {
		return err
	}
	fs, err := initramfs{userland: job.Root, kernel: v.Kernel, kubeProxies: job.KubeProxies, init: binary, disk: v.Disk != ""}.file()
	if err != nil {
		return err
	}
	defer fs.Close()
	job.Root = "/"
	if v.Disk != "" {
		job.Root = DiskUserland
	}
	job.Accelerator = v.Accelerator
	if job.Parallel == 0 {
		job.Parallel = lab.DefaultParallel
		if v.Accelerator == AcceleratorTCG {
			job.Parallel = emulatedParallel
		}
	}
	job.KubeProxies = maps.Clone(job.KubeProxies)
	for version := range job.KubeProxies {
		job.KubeProxies[version] = guestKubeProxy(version)
	}
	for attempt := 1; ; attempt++ {
		g := guest{vm: v, initramfs: fs, emit: emit}
		g.console.line = func(l string) { emit(logEvent("console: %s", l)) }
		err := g.run(ctx, job)
		if err == nil || g.ready || attempt == 2 || ctx.Err() != nil || !errors.Is(err, errGuest) {
			return err
		}
		emit(logEvent("the guest failed before it was ready, booting it once more: %v", err))
	}
}

// errGuest is what errors of a guest that was started wrap.
var errGuest = errors.New("the guest failed")

// sinceLast says how long ago an event came.
type sinceLast struct {
	mu   sync.Mutex
	last time.Time
}

func (s *sinceLast) now() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Now()
}

func (s *sinceLast) elapsed() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.last)
}

// run boots the guest once.
func (g *guest) run(ctx context.Context, job lab.Job) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	started := time.Now()
	q, err := g.start()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, q.kill)
	defer stop()

	var owned sync.WaitGroup
	owned.Go(func() {
		// A write error means that the guest is gone, and its end says more.
		_ = json.NewEncoder(q.port).Encode(job)
	})
	var heard sinceLast
	heard.now()
	owned.Go(func() { g.watch(ctx, &heard, cancel) })

	done := false
	var refused string
	streamErr := receive(q.port, func(e lab.Event) {
		heard.now()
		switch e.Type {
		case eventAlive:
			return
		case lab.EventReady:
			g.ready = true
			if e.Machine != nil {
				e.Machine.BootMs = time.Since(started).Milliseconds()
			}
		case lab.EventDone:
			done, refused = true, e.Message
			q.kill() // there is nothing left to shut down
			if refused != "" {
				return
			}
		}
		g.emit(e)
	})
	if streamErr != nil {
		q.kill()
	}
	exit := q.wait()
	cause := context.Cause(ctx)
	cancel(nil)
	_ = q.port.Close()
	owned.Wait()
	switch {
	case refused != "":
		return errors.New(refused)
	case done:
		return nil
	case cause != nil && !errors.Is(cause, errSilent):
		return cause
	}
	return g.explain(cause, streamErr, exit)
}

// errSilent says that nothing came from a guest for too long.
var errSilent = errors.New("silent")

// watch ends a guest that has gone silent.
func (g *guest) watch(ctx context.Context, heard *sinceLast, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if quiet := heard.elapsed(); quiet > g.vm.patience() {
				cancel(fmt.Errorf("%w for %v", errSilent, quiet.Round(time.Second)))
				return
			}
		}
	}
}

// patience is how long a guest may send nothing, booting or running; it sends a sign of life every second.
func (v *VM) patience() time.Duration {
	switch {
	case v.silence != 0:
		return v.silence
	case v.Accelerator == AcceleratorKVM:
		return 30 * time.Second
	default:
		return 2 * time.Minute
	}
}

// What a kernel prints when it gives up, and when it kills a process for its memory.
const (
	panicWords = "Kernel panic"
	oomWords   = "Out of memory: Killed process"
)

// explain says how a guest ended before its job was done.
func (g *guest) explain(silent, streamErr, exit error) error {
	const shown = 30
	what, last := "it powered off before its job was done", g.console.last(shown)
	switch {
	case strings.Contains(g.console.text(), panicWords):
		what, last = "kernel panic", g.console.around(panicWords, shown)
	case strings.Contains(g.console.text(), oomWords):
		what, last = "out of memory", g.console.around(oomWords, shown)
	case silent != nil:
		what = "it hangs: " + silent.Error()
	case streamErr != nil:
		what = streamErr.Error()
	case exit != nil:
		what = fmt.Sprintf("QEMU ended (%v): %s", exit, g.said.last(5))
	}
	when := "while it booted"
	if g.ready {
		when = "while it ran"
	}
	return fmt.Errorf("%w %s (kernel %s, %s): %s; the console's last lines:\n%s", errGuest, when, g.vm.Kernel.Name, g.vm.Accelerator, what, last)
}
