package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// usage is what a process and its children have used.
type usage struct {
	cpu      time.Duration // of the process, to the nanosecond
	children time.Duration // of the children that it has waited for, to a clock tick of the kernel (10 ms)
}

func (u usage) minus(v usage) usage { return usage{u.cpu - v.cpu, u.children - v.children} }

// clockTick is USER_HZ, which is 100 on every architecture that Go runs on.
const clockTick = 10 * time.Millisecond

func usageOf(pid int) (usage, error) {
	// The clock of another process: clock_getcpuclockid(3).
	var t unix.Timespec
	const schedClock = 2 // CPUCLOCK_SCHED
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &t); err != nil {
		return usage{}, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	fields, err := statFields(pid)
	if err != nil {
		return usage{}, err
	}
	u := usage{cpu: time.Duration(t.Nano())}
	for _, i := range []int{13, 14} { // cutime, cstime (proc(5) counts from 1 and before the command's name)
		ticks, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return usage{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		u.children += time.Duration(ticks) * clockTick
	}
	return u, nil
}

// statFields are the fields of /proc/PID/stat from the state on.
func statFields(pid int) ([]string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	// "pid (comm) state ppid pgrp ...", where comm may contain anything.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 15 {
		return nil, fmt.Errorf("/proc/%d/stat has only %d fields", pid, len(fields))
	}
	return fields, nil
}

// peak is the most memory that a process has had resident, in bytes.
func peak(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no VmHWM", pid)
}

// slab is the kernel's own memory that it cannot reclaim, of the whole machine, in bytes: rules and sets are in it.
func slab() (int64, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, "SUnreclaim:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/meminfo has no SUnreclaim")
}

// members lists the processes of a group, without its leader and without zombies.
func members(group int) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == group {
			continue
		}
		if f, err := statFields(pid); err == nil && f[2] == strconv.Itoa(group) && f[0] != "Z" && f[0] != "X" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// childPeaks follows the memory of a kube-proxy's children, all its life. A child that is shorter than the interval may be missed; one
// that needs much memory is not.
type childPeaks struct {
	stop chan struct{}
	done sync.WaitGroup
	mu   sync.Mutex
	most int64
}

const childPeakEvery = 20 * time.Millisecond

// followChildren begins with whatever process current names, once there is one.
func followChildren(current func() (int, time.Time)) *childPeaks {
	c := &childPeaks{stop: make(chan struct{})}
	c.done.Go(func() {
		every := time.NewTicker(childPeakEvery)
		defer every.Stop()
		for {
			select {
			case <-c.stop:
				return
			case <-every.C:
			}
			group, _ := current()
			if group == 0 {
				continue
			}
			own, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", group))
			if err != nil {
				continue
			}
			for _, pid := range members(group) {
				// Between fork and exec a child has its parent's memory.
				if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err != nil || exe == own {
					continue
				}
				if bytes, err := peak(pid); err == nil {
					c.mu.Lock()
					c.most = max(c.most, bytes)
					c.mu.Unlock()
				}
			}
		}
	})
	return c
}

// end stops it and returns the most that one child had resident, in bytes.
func (c *childPeaks) end() int64 {
	close(c.stop)
	c.done.Wait()
	return c.most
}
