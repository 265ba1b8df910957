package results

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"kplab/lab"
	"kplab/results/figures"
)

var (
	// ErrOverlap is wrapped by the error of [Merge] for shards that have a cell in common which did not come out alike.
	ErrOverlap = errors.New("are in several shards and are not the same")
	// ErrUnmergeable is wrapped by the error of [Merge] for folders that cannot be one run.
	ErrUnmergeable = errors.New("cannot be merged")
)

const (
	shardsDir  = "shards"
	logsOfKind = "kind-logs"
)

// Overlap is what becomes of a cell that several runs have and that did not come out alike.
type Overlap int

const (
	RefuseOverlap Overlap = iota // [ErrOverlap]
	TakeNewest                   // the run that began last has the say: it is the others' cells again, after something was mended
)

// Merge joins runs, the shards of a matrix, into one in dir. Cells and their evidence are where those of a run are; what else a shard
// left, its events and what its machines left, is in shards/N. There is no events.jsonl of the whole.
//
// A cell that several shards have is taken once if it is the same to the byte, evidence included; else overlap decides. A shard
// that is missing is no error: [Run.MissingShards] names it, and [ExitStatus] knows. Claims are weighed again over all cells.
func Merge(dir string, command []string, overlap Overlap, shards ...string) (*Run, error) {
	var runs []*Run
	for _, name := range shards {
		run, err := Read(name)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnmergeable, err)
		}
		if _, err := os.Stat(filepath.Join(run.Dir, figures.BenchFile)); err == nil {
			return nil, fmt.Errorf("%s %w: it holds figures; kplab report takes several folders", run.Dir, ErrUnmergeable)
		}
		if run.Sabotage != "" {
			return nil, fmt.Errorf("%s %w: it was sabotaged on purpose (%s)", run.Dir, ErrUnmergeable, run.Sabotage)
		}
		if !slices.ContainsFunc(runs, func(have *Run) bool { return sameJSON(have, run) }) { // the same shard named twice is one
			runs = append(runs, run)
		}
	}
	merged, old, err := join(runs, overlap)
	if err != nil {
		return nil, err
	}
	merged.Command, merged.Dir = command, dir
	return merged, write(merged, runs, old)
}

// join makes one run of several. old is, for a run that has the say over earlier ones, what evidence they have of its cells.
func join(runs []*Run, overlap Overlap) (m *Run, old map[*Run][]string, err error) {
	slices.SortStableFunc(runs, func(a, b *Run) int { return a.Started.Compare(b.Started) })
	m = &Run{Schema: Schema, Started: runs[0].Started, Machines: []Machine{}, Cells: []lab.Result{}}
	m.ID = m.Started.UTC().Format("20060102T150405.000Z") + "-merged"
	old = map[*Run][]string{}
	from := map[string]*Run{} // by the cell's id, without its repeat's number
	var overlaps []string
	var claims []lab.Claim
	for _, run := range runs {
		m.addShard(run)
		for _, machine := range run.Machines {
			if !slices.ContainsFunc(m.Machines, func(have Machine) bool { return sameJSON(have, machine) }) {
				m.Machines = append(m.Machines, machine)
			}
		}
		for _, c := range run.Claims {
			if !slices.ContainsFunc(claims, func(have lab.Claim) bool { return have.ID == c.ID }) {
				claims = append(claims, c.Claim)
			}
		}
		for _, c := range run.Cells {
			id := c.Once().ID()
			other := from[id]
			if other == nil {
				from[id] = run
				m.Cells = append(m.Cells, c)
				continue
			}
			i := slices.IndexFunc(m.Cells, func(have lab.Result) bool { return have.Once().ID() == id })
			switch {
			case sameJSON(m.Cells[i], c) && sameEvidence(other, run, c):
			case overlap == TakeNewest:
				old[run] = append(old[run], evidenceOf(m.Cells[i])...)
				from[id], m.Cells[i] = run, c
			default:
				overlaps = append(overlaps, fmt.Sprintf("%s (%s, %s)", id, other.Dir, run.Dir))
			}
		}
	}
	if len(overlaps) > 0 {
		return nil, nil, fmt.Errorf("cells %w: %s", ErrOverlap, list(overlaps, maxCells, ", "))
	}
	slices.SortStableFunc(m.Cells, comparePlanned)
	for _, run := range runs {
		m.DurationMs = max(m.DurationMs, run.Started.Sub(m.Started).Milliseconds()+run.DurationMs)
		if run.Finished.After(m.Finished) {
			m.Finished = run.Finished
		}
	}
	if slices.ContainsFunc(runs, func(r *Run) bool { return r.Finished.IsZero() }) {
		m.Finished = time.Time{}
	}
	m.Host = commonHost(runs)
	m.Claims = Ledger(claims, m)
	return m, old, nil
}

// evidenceOf names the files of a cell and of all its repeats.
func evidenceOf(c lab.Result) []string {
	files := slices.Clone(c.Evidence)
	for _, r := range c.Repeats {
		files = append(files, r.Evidence...)
	}
	return files
}

// addShard notes a run that this one is merged from; of one that was merged itself, its shards.
func (m *Run) addShard(run *Run) {
	if len(run.Shards) > 0 {
		m.Shards = append(m.Shards, run.Shards...)
	} else {
		m.Shards = append(m.Shards, Shard{run.ID, run.Shard, run.Started, run.Finished, run.DurationMs, run.Host, orEmpty(run.Command)})
	}
}

// comparePlanned orders cells as a plan of all scenarios does.
func comparePlanned(a, b lab.Result) int {
	if a.Scenario != b.Scenario {
		return strings.Compare(a.Scenario, b.Scenario)
	}
	return modeRank(a.Mode) - modeRank(b.Mode)
}

func sameJSON(a, b any) bool {
	x, errX := marshal(a, "")
	y, errY := marshal(b, "")
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// sameEvidence reports whether two runs have the same evidence of a cell.
func sameEvidence(a, b *Run, c lab.Result) bool {
	for _, name := range c.Evidence {
		x, errX := os.ReadFile(filepath.Join(a.Dir, filepath.FromSlash(name)))
		y, errY := os.ReadFile(filepath.Join(b.Dir, filepath.FromSlash(name)))
		if (errX == nil) != (errY == nil) || !bytes.Equal(x, y) {
			return false
		}
	}
	return true
}

// commonHost is what the runs' hosts have in common.
func commonHost(runs []*Run) Host {
	each := func(of func(Host) string) string {
		var values []string
		for _, run := range runs {
			values = appendNew(values, of(run.Host))
		}
		return strings.Join(values, ", ")
	}
	h := Host{
		OS: each(func(h Host) string { return h.OS }), Kernel: each(func(h Host) string { return h.Kernel }), CPU: each(func(h Host) string { return h.CPU }),
		KPLab: each(func(h Host) string { return h.KPLab }), User: each(func(h Host) string { return h.User }),
		Cores: runs[0].Host.Cores, MemoryBytes: runs[0].Host.MemoryBytes,
	}
	for _, run := range runs {
		h.Cores, h.MemoryBytes = min(h.Cores, run.Host.Cores), min(h.MemoryBytes, run.Host.MemoryBytes)
	}
	return h
}

// write leaves the folder of a merged run.
func write(m *Run, runs []*Run, old map[*Run][]string) (err error) {
	if err := os.MkdirAll(m.Dir, 0o777); err != nil {
		return fmt.Errorf("create the results folder: %w: choose another folder", err)
	}
	s := &Store{dir: m.Dir}
	if s.root, err = os.OpenRoot(m.Dir); err != nil {
		return fmt.Errorf("open the results folder: %w: choose another folder", err)
	}
	defer s.root.Close()
	for _, name := range []string{runFile, eventsFile, cellsDir, shardsDir} {
		if _, err := s.root.Lstat(name); err == nil {
			return fmt.Errorf("%s %w: choose another folder", m.Dir, ErrExists)
		}
	}
	n := 0
	for _, run := range runs {
		for _, name := range old[run] {
			if err := s.root.Remove(filepath.FromSlash(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("take the newer run's evidence: %w", err)
			}
		}
		s.copy(filepath.Join(run.Dir, cellsDir), cellsDir)
		parts, _ := filepath.Glob(filepath.Join(run.Dir, shardsDir, "*"))
		slices.SortFunc(parts, compareNatural)
		for _, part := range parts {
			n++
			s.copy(part, path.Join(shardsDir, strconv.Itoa(n)))
		}
		if len(parts) > 0 {
			continue
		}
		n++
		for _, name := range []string{eventsFile, machinesDir, logsOfKind} {
			s.copy(filepath.Join(run.Dir, name), path.Join(shardsDir, strconv.Itoa(n), name))
		}
	}
	text, err := marshal(m, "  ")
	if err != nil {
		return err
	}
	s.replace(runFile, text)
	s.report(m)
	return s.err
}

// copy copies a file or a folder into the store's; what is not there is left out.
func (s *Store) copy(from, to string) {
	if s.err != nil {
		return
	}
	err := filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name == from {
			return nil
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		s.keep(path.Join(to, filepath.ToSlash(relative)), content)
		return s.err
	})
	if err != nil && s.err == nil {
		s.fail(err)
	}
}

// MissingShards names the shards of a matrix ("2/5") that a merged run lacks.
func (r *Run) MissingShards() (missing []string) {
	var counts []int
	have := map[string]bool{}
	for _, s := range r.Shards {
		have[s.Shard] = true
		_, count, _ := strings.Cut(s.Shard, "/")
		if n, err := strconv.Atoi(count); err == nil {
			counts = appendNew(counts, n)
		}
	}
	for _, n := range counts {
		for i := 1; i <= n; i++ {
			if s := fmt.Sprintf("%d/%d", i, n); !have[s] {
				missing = append(missing, s)
			}
		}
	}
	return missing
}
