package figures

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// The files of a folder of figures.
const (
	BenchFile   = "bench.txt"
	SamplesFile = "samples.csv"
	GapsFile    = "gaps.csv"
	BookFile    = "bench.json"
)

// ErrNone is wrapped by the error of [Read] for a folder that holds no figures.
var ErrNone = errors.New("holds no figures")

// Set is the figures of one folder.
type Set struct {
	Dir     string
	Lines   []Line // in the order of bench.txt
	Samples []Sample
	Gaps    []Gap
	// Missing says what was asked for and is not there, and why: "iptables, 30000 Services, run 1: kube-proxy is not synced after 4m45s".
	Missing []string
	units   benchfmt.UnitMetadataMap
}

// Line is one line of bench.txt: what one run of one benchmark measured.
type Line struct {
	Bench   string            // "Sync": the name without "Benchmark" and without keys
	Keys    []Key             // of the name, in its order
	Config  map[string]string // the configuration lines that hold for it
	Values  []Value
	Pos     string // "results/x/bench.txt:12"
	Ordinal int    // from 0, among the lines of the same name and setting: which run it is
}

// Key is "services=1000" in a benchmark's name. A part of a name without "=" has no Name.
type Key struct{ Name, Value string }

// Value is one figure in the unit in which it was written ("ms/sync").
type Value struct {
	Unit  string
	Value float64
}

// Read reads the figures in dir. A folder without bench.txt is [ErrNone]; a line that looks like a benchmark's and cannot be read
// is an error that names file and line.
func Read(dir string) (*Set, error) {
	name := filepath.Join(dir, BenchFile)
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s %w: it has no %s", dir, ErrNone, BenchFile)
	}
	if err != nil {
		return nil, fmt.Errorf("read figures: %w", err)
	}
	defer f.Close()
	s := &Set{Dir: dir}
	runs := map[string]int{}
	r := benchfmt.NewReader(f, name)
	for r.Scan() {
		switch rec := r.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, fmt.Errorf("read figures: %w", rec)
		case *benchfmt.Result:
			line := lineOf(rec)
			for _, v := range line.Values {
				if math.IsNaN(v.Value) || math.IsInf(v.Value, 0) {
					return nil, fmt.Errorf("read figures: %s: %g %s is no figure", line.Pos, v.Value, v.Unit)
				}
			}
			id := line.Name() + line.Setting().String()
			line.Ordinal = runs[id]
			runs[id]++
			s.Lines = append(s.Lines, line)
		}
	}
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("read figures: %s: %w", name, err)
	}
	s.units = r.Units()
	if len(s.Lines) == 0 {
		return nil, fmt.Errorf("%s %w: %s has no line of a benchmark", dir, ErrNone, BenchFile)
	}
	if s.Samples, err = readSamples(filepath.Join(dir, SamplesFile)); err != nil {
		return nil, err
	}
	if s.Gaps, err = readGaps(filepath.Join(dir, GapsFile)); err != nil {
		return nil, err
	}
	s.Missing, err = readMissing(filepath.Join(dir, BookFile))
	return s, err
}

// readMissing reads what bench.json says of measurements that were asked for and are not there.
func readMissing(name string) (missing []string, err error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read figures: %w", err)
	}
	var book struct {
		LeftOut  []string `json:"leftOut"`
		Failures []struct {
			Kernel, Trial, Name, Reason string
		} `json:"failures"`
		Interrupted string `json:"interrupted"`
	}
	if err := json.Unmarshal(text, &book); err != nil {
		return nil, fmt.Errorf("read figures: %s: %w", name, err)
	}
	missing = book.LeftOut
	for _, f := range book.Failures {
		missing = append(missing, fmt.Sprintf("%s on %s (%s): %s", f.Name, f.Kernel, f.Trial, f.Reason))
	}
	if book.Interrupted != "" {
		missing = append(missing, "the rest of them: "+book.Interrupted)
	}
	return missing, nil
}

func lineOf(r *benchfmt.Result) Line {
	line := Line{Config: map[string]string{}}
	line.Bench, line.Keys = ParseName(r.Name.String())
	for _, c := range r.Config {
		line.Config[c.Key] = string(c.Value)
	}
	for _, v := range r.Values {
		if v.OrigUnit != "" { // the reader has made ns of sec; people read what was written
			v.Unit, v.Value = v.OrigUnit, v.OrigValue
		}
		line.Values = append(line.Values, Value{v.Unit, v.Value})
	}
	file, n := r.Pos()
	line.Pos = fmt.Sprintf("%s:%d", file, n)
	return line
}

// ParseName takes a benchmark's name apart, with or without "Benchmark" before it: "Sync" and its keys. The number of processors
// that `go test` appends ("-8") is the key "gomaxprocs".
func ParseName(name string) (bench string, keys []Key) {
	base, parts := benchfmt.Name(strings.TrimPrefix(name, "Benchmark")).Parts()
	for _, p := range parts {
		part := string(p)
		if part[0] == '-' {
			keys = append(keys, Key{"gomaxprocs", part[1:]})
			continue
		}
		k, v, ok := strings.Cut(part[1:], "=")
		if !ok {
			k, v = "", part[1:]
		}
		keys = append(keys, Key{k, v})
	}
	return string(base), keys
}

// Key is the value of a key of the name, "" where it has none.
func (l Line) Key(name string) string { return KeyOf(l.Keys, name) }

// KeyOf is the value of the key of that name, "" where there is none.
func KeyOf(keys []Key, name string) string {
	i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == name })
	if i < 0 {
		return ""
	}
	return keys[i].Value
}

// Without returns the keys but those named.
func Without(keys []Key, names ...string) (rest []Key) {
	for _, k := range keys {
		if !slices.Contains(names, k.Name) {
			rest = append(rest, k)
		}
	}
	return rest
}

// Name is the benchmark's name with its keys: "Sync/event=first/services=1000/mode=nftables".
func (l Line) Name() string { return l.Bench + NameOf(l.Keys) }

// NameOf writes keys as in a benchmark's name: "/event=first/services=1000".
func NameOf(keys []Key) string {
	var b strings.Builder
	for _, k := range keys {
		b.WriteString("/")
		if k.Name != "" {
			b.WriteString(k.Name + "=")
		}
		b.WriteString(k.Value)
	}
	return b.String()
}

// Better says which way a unit improves: 1 if higher is better, -1 if lower is. It is what bench.txt says ("Unit x better=higher");
// of a unit about which it says nothing, a rate ("connections/s") is better higher, and anything else, a time or a cost, lower.
func (s *Set) Better(unit string) int {
	if b := s.units.GetBetter(unit); b != 0 {
		return b
	}
	if strings.HasSuffix(unit, "/s") || strings.HasSuffix(unit, "/sec") {
		return 1
	}
	return -1
}
