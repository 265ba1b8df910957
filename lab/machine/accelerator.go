package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Accelerators: what executes a machine's instructions.
const (
	AcceleratorHost = "host" // this kernel, no VM
	AcceleratorKVM  = "kvm"
	AcceleratorTCG  = "tcg" // QEMU translates every instruction
)

// trialPatience is how long a guest under KVM gets to say that it runs; one that does needs a second.
const trialPatience = 20 * time.Second

// accelerators is accel.json: what was found out, by what it depends on.
type accelerators map[string]accelerator

type accelerator struct {
	Accelerator string `json:"accelerator"`
	Why         string `json:"why"`
}

// Accelerator says which accelerator VMs can use here: [AcceleratorKVM] if a guest really runs under it, else [AcceleratorTCG]. That /dev/kvm
// opens proves nothing: on some nested hosts guests spin for ever or QEMU aborts. So a trial guest has to answer, once per host
// kernel, CPU and /dev/kvm; the outcome is kept in accel.json.
func (c Cache) Accelerator(ctx context.Context, k Kernel) (string, error) {
	key, err := acceleratorKey()
	if err != nil {
		return AcceleratorTCG, nil // there is none, or it is not ours to open
	}
	if err := os.MkdirAll(c.Root, 0o755); err != nil {
		return "", fmt.Errorf("make the cache: %w", err)
	}
	unlock, err := lock(filepath.Join(c.Root, ".accel.lock"))
	if err != nil {
		return "", err
	}
	known, err := c.loadAccelerators()
	if err != nil {
		return "", errors.Join(err, unlock())
	}
	found, ok := known[key]
	if !ok {
		c.progress("trying a guest under KVM (at most %v, once)", trialPatience)
		found, err = tryKVM(ctx, k)
		if err == nil {
			c.progress("VMs use %s: %s", found.Accelerator, found.Why)
			known[key] = found
			err = c.saveAccelerators(known)
		}
	}
	return found.Accelerator, errors.Join(err, unlock())
}

// acceleratorKey names all that decides whether KVM works; an error means that /dev/kvm cannot be used at all.
func acceleratorKey() (string, error) {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	i, err := f.Stat()
	if err != nil {
		return "", err
	}
	s, ok := i.Sys().(*syscall.Stat_t)
	if !ok {
		return "", errors.New("/dev/kvm has no inode")
	}
	return fmt.Sprintf("%s, %s, /dev/kvm %d of %d", release(), cpuModel(), s.Ino, s.Ctim.Sec), nil
}

func (c Cache) acceleratorFile() string { return filepath.Join(c.Root, "accel.json") }

func (c Cache) loadAccelerators() (accelerators, error) {
	known := accelerators{}
	b, err := os.ReadFile(c.acceleratorFile())
	if errors.Is(err, os.ErrNotExist) {
		return known, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &known)
	}
	if err != nil {
		return nil, fmt.Errorf("read what accelerators work here (remove %s to find out anew): %w", c.acceleratorFile(), err)
	}
	return known, nil
}

func (c Cache) saveAccelerators(known accelerators) error {
	b, err := json.MarshalIndent(known, "", "  ")
	if err != nil {
		return fmt.Errorf("write accel.json: %w", err)
	}
	part := c.acceleratorFile() + ".part"
	if err := os.WriteFile(part, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write accel.json: %w", err)
	}
	return os.Rename(part, c.acceleratorFile())
}

// tryKVM finds out whether a guest runs under KVM. An error means that it could not be found out.
func tryKVM(ctx context.Context, k Kernel) (accelerator, error) {
	err := trial(ctx, &VM{Kernel: k, Accelerator: AcceleratorKVM, Memory: 512}, trialPatience)
	switch {
	case ctx.Err() != nil:
		return accelerator{}, context.Cause(ctx)
	case errors.Is(err, errGuest):
		return accelerator{AcceleratorTCG, "/dev/kvm is there but does not run guests: " + err.Error()}, nil
	case err != nil:
		return accelerator{}, err
	}
	return accelerator{AcceleratorKVM, "a trial guest ran"}, nil
}

// trial boots a guest of nothing but this binary, which says so on the console. A guest that does not within patience is an errGuest.
func trial(ctx context.Context, v *VM, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	binary, err := ownBinary()
	if err != nil {
		return err
	}
	fs, err := initramfs{init: binary}.file()
	if err != nil {
		return err
	}
	defer fs.Close()
	p, err := platformOf(runtime.GOARCH)
	if err != nil {
		return err
	}
	path, err := p.find()
	if err != nil {
		return err
	}
	answered := make(chan struct{})
	var said tail
	console := &tail{line: func(l string) {
		if strings.Contains(l, trialWords) {
			close(answered)
		}
	}}
	cmd := exec.Command(path, v.arguments(p, fs, trialArg)...)
	cmd.Stdout, cmd.Stderr = console, &said
	cmd.ExtraFiles = []*os.File{fs}
	kill, wait, err := startOwned(cmd)
	if err != nil {
		return fmt.Errorf("start %q: %w", cmd.Args, err)
	}
	stop := context.AfterFunc(ctx, kill)
	exit := wait()
	stop()
	select {
	case <-answered:
		return nil
	default:
	}
	if ctx.Err() != nil {
		exit = fmt.Errorf("no answer within %v", patience)
	}
	return fmt.Errorf("%w: %v: %s %s", errGuest, exit, said.last(3), console.last(3))
}
