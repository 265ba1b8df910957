package machine

import (
	"bufio"
	"context"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What the two workloads of [calibrate] take on the reference machine, a 2-core cloud server of 2025 that runs them natively.
const (
	referenceCompute = 3 * time.Millisecond
	referenceExec    = 4 * time.Millisecond
)

// calibrate says how many times slower this machine is than the reference, at least 1: the geometric mean of computing and of
// starting processes, between which kube-proxy's work lies. TCG computes some 5 times and starts processes some 50 times slower. Each
// is the best of a few tries, so that a busy moment does not count.
func calibrate(ctx context.Context, root string) float64 {
	compute := best(3, func() error { computeWorkload(); return nil })
	slower := float64(compute) / float64(referenceCompute)
	shell := Chroot(root)
	if exec := best(3, func() error { _, err := shell(ctx, "sh", "-c", ":"); return err }); exec > 0 {
		slower = math.Sqrt(slower * float64(exec) / float64(referenceExec))
	}
	return max(1, slower)
}

// best returns the shortest time that work took in n tries, 0 if it never succeeded.
func best(n int, work func() error) time.Duration {
	var shortest time.Duration
	for range n {
		start := time.Now()
		if err := work(); err != nil {
			continue
		}
		if took := time.Since(start); shortest == 0 || took < shortest {
			shortest = took
		}
	}
	return shortest
}

// computeWorkload sorts numbers and counts words: branches, memory and allocation, no instruction that some CPUs have and others do not.
func computeWorkload() {
	numbers := make([]uint32, 30_000)
	x := uint32(1)
	for i := range numbers {
		x = x*1664525 + 1013904223
		numbers[i] = x
	}
	slices.Sort(numbers)
	counts := map[string]int{}
	for i, n := range numbers {
		if i%4 == 0 {
			counts[strings.Repeat("x", int(n%64))]++
		}
	}
}

// cpuModel is the CPU's name as /proc/cpuinfo has it, "" if it has none.
func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		key, value, _ := strings.Cut(s.Text(), ":")
		if strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// release is the running kernel's, as uname -r says.
func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
