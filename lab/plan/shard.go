package plan

import (
	"fmt"
	"strconv"
	"strings"

	"kplab/lab/script"
)

// Shard is one of several parts of a matrix, so that several machines can share it. The zero value is all of it.
type Shard struct {
	Index int // from 1
	Count int
}

// ParseShard reads "2/5": the second of five.
func ParseShard(s string) (Shard, error) {
	index, count, ok := strings.Cut(s, "/")
	i, errI := strconv.Atoi(index)
	n, errN := strconv.Atoi(count)
	if !ok || errI != nil || errN != nil || n < 1 || i < 1 || i > n {
		return Shard{}, fmt.Errorf("shard %q: expected I/N, the I-th of N parts, such as 2/5", s)
	}
	return Shard{i, n}, nil
}

// String is "2/5", "" for all of it.
func (s Shard) String() string {
	if s.Count == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", s.Index, s.Count)
}

// share says which combinations of a matrix are the shard's: those of a scenario, mode, version, userland and substrate, on every kernel.
//
// Kernels are not dealt out: where Auto places a cell depends on the host, and shards run on different ones. So no cell is in two
// shards and none is in no shard, whatever the hosts can do, and repeats of a cell stay together. Combinations are dealt in turn,
// mode by mode and version by version, so that shards differ by one combination at most, in all and in each mode: modes differ most
// in what they cost.
func (s Shard) share(m Matrix, scripts []*script.Script) func(substrate, userland, mode, version, scenario string) bool {
	if s.Count == 0 {
		return func(string, string, string, string, string) bool { return true }
	}
	mine := map[[5]string]bool{}
	n := 0
	for _, substrate := range m.Substrates {
		for _, userland := range m.Userlands {
			for _, mode := range m.Modes {
				for _, version := range m.KubeProxies {
					for _, script := range scripts {
						if n%s.Count == s.Index-1 {
							mine[[5]string{substrate, userland, string(mode), version, script.Name}] = true
						}
						n++
					}
				}
			}
		}
	}
	return func(substrate, userland, mode, version, scenario string) bool {
		return mine[[5]string{substrate, userland, mode, version, scenario}]
	}
}
