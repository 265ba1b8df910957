package bench

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/perf/benchfmt"

	"kplab/lab"
)

// The files of a benchmark's folder. The first three only ever grow, and each line is there as soon as it is measured: a run that is
// interrupted, or killed, keeps what it has.
const (
	FiguresFile  = "bench.txt"   // Go benchmark format: a line for each measurement, never averaged
	SamplesFile  = "samples.csv" // bench, mode, run, index, value, unit: the single operations behind a line
	GapsFile     = "gaps.csv"    // pair, services, run, client, at_ms, outcome: what clients saw while a mode was switched
	SettingsFile = "bench.json"  // a Book
	FailuresDir  = "failures"    // kube-proxy's log of each trial that failed
)

// Schema is the version of bench.json's form, which results/schema/bench.schema.json describes. A reader reads all up to its own.
const Schema = 1

// Book is bench.json: the setting of a benchmark in full, what the lab itself costs in it, and what could not be measured.
type Book struct {
	Schema      int           `json:"schema"`
	Started     time.Time     `json:"started"`
	Ended       time.Time     `json:"ended,omitzero"`
	Command     []string      `json:"command"`
	Host        any           `json:"host"`
	Settings    Settings      `json:"settings"`
	Left        []string      `json:"leftOut,omitempty"` // modes and kernels that were asked for and cannot be measured, with the reason
	Machines    []MachineBook `json:"machines"`
	Failures    []Failure     `json:"failures"`
	Interrupted string        `json:"interrupted,omitempty"`
}

// MachineBook is one machine: figures of two machines have no common axis.
type MachineBook struct {
	Kernel       string       `json:"kernel"` // as asked for: "host", "debian-12"
	Userland     string       `json:"userland"`
	Machine      *lab.Machine `json:"machine,omitempty"`
	Trials       int          `json:"trials"`
	Calibrations []Value      `json:"calibrations"` // the lab's own cost, as measured in the trials
}

// Value is a calibration: what the lab itself takes.
type Value struct {
	Name  string  `json:"name"` // as a measurement's
	Run   int     `json:"run"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Failure is a measurement that was asked for and is not there.
type Failure struct {
	Kernel string `json:"kernel"`
	Trial  string `json:"trial"`
	Name   string `json:"name,omitempty"`
	Reason string `json:"reason"`
}

// Recorder writes a benchmark's folder while it happens.
type Recorder struct {
	dir     string
	mu      sync.Mutex
	book    Book
	figures *os.File
	write   *benchfmt.Writer
	samples *csvFile
	gaps    *csvFile // nil until there is one
	current *MachineBook
	err     error // the first failure to write
}

type csvFile struct {
	file *os.File
	out  *csv.Writer
}

// NewRecorder begins a folder, which must not hold a benchmark yet.
func NewRecorder(dir string, b Book) (*Recorder, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("create the results folder: %w: choose another folder", err)
	}
	for _, name := range []string{FiguresFile, SettingsFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s already holds a benchmark: choose another folder", dir)
		}
	}
	b.Schema, b.Started, b.Failures, b.Machines = Schema, time.Now().UTC().Truncate(time.Millisecond), []Failure{}, []MachineBook{}
	r := &Recorder{dir: dir, book: b}
	var err error
	if r.figures, err = create(dir, FiguresFile); err != nil {
		return nil, err
	}
	r.write = benchfmt.NewWriter(r.figures)
	if r.samples, err = newCSV(dir, SamplesFile, "bench", "mode", "run", "index", "value", "unit"); err != nil {
		return nil, errors.Join(err, r.figures.Close())
	}
	for _, unit := range higherIsBetter {
		r.note(r.write.Write(&benchfmt.UnitMetadata{
			UnitMetadataKey: benchfmt.UnitMetadataKey{Unit: unit, Key: "better"}, OrigUnit: unit, Value: "higher",
		}))
	}
	r.save()
	return r, r.err
}

// higherIsBetter are the units of which more is better; of all others, less is.
var higherIsBetter = []string{"connections/s", "packets/s", "changes/s"}

func create(dir, name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_EXCL, 0o666)
	if err != nil {
		return nil, fmt.Errorf("create a result file: %w: choose another folder", err)
	}
	return f, nil
}

func newCSV(dir, name string, header ...string) (*csvFile, error) {
	f, err := create(dir, name)
	if err != nil {
		return nil, err
	}
	c := &csvFile{file: f, out: csv.NewWriter(f)}
	if err := c.out.Write(header); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return c, nil
}

func (c *csvFile) flush() error { c.out.Flush(); return c.out.Error() }
func (c *csvFile) close() error { return errors.Join(c.flush(), c.file.Close()) }

// Begin says which machine the events that follow come from.
func (r *Recorder) Begin(kernel, userland string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.book.Machines = append(r.book.Machines, MachineBook{Kernel: kernel, Userland: userland, Calibrations: []Value{}})
	r.current = &r.book.Machines[len(r.book.Machines)-1]
}

// Add takes in an event of the machine that Begin named last. It returns the first error of writing.
func (r *Recorder) Add(e lab.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case e.Type == lab.EventReady && e.Machine != nil:
		r.current.Machine = e.Machine
		r.save()
	case e.Type == lab.EventTrialEnd && e.Trial != nil:
		if e.Trial.Run > 0 {
			r.current.Trials++
		}
		if e.Message != "" {
			r.fail(Failure{Trial: e.Trial.String(), Reason: e.Message})
		}
		r.save()
	case e.Type == lab.EventEvidence && e.Trial != nil:
		r.evidence(*e.Trial, e.Path, e.Data)
	case e.Type == lab.EventMeasurement && e.Trial != nil && e.Measurement != nil:
		r.measured(*e.Trial, *e.Measurement)
	}
	return r.err
}

// Fail records that a machine, or a mode on it, could not be measured at all.
func (r *Recorder) Fail(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail(Failure{Reason: reason})
	r.save()
}

func (r *Recorder) fail(f Failure) {
	if r.current != nil {
		f.Kernel = r.current.Kernel
	}
	// A trial that ends with what its last measurement has already said says it once.
	for _, have := range r.book.Failures {
		if have.Kernel == f.Kernel && have.Trial == f.Trial && have.Reason == f.Reason {
			return
		}
	}
	r.book.Failures = append(r.book.Failures, f)
}

// measured writes one measurement.
func (r *Recorder) measured(t lab.Trial, m lab.Measurement) {
	if m.Error != "" {
		r.fail(Failure{Trial: t.String(), Name: m.Name, Reason: m.Error})
		return
	}
	if t.Run == 0 {
		return
	}
	line := &benchfmt.Result{Name: benchfmt.Name(m.Name), Iters: max(m.Iters, 1)}
	for _, c := range r.configuration(t) {
		line.SetConfig(c[0], c[1])
		line.Config[len(line.Config)-1].File = true
	}
	for _, v := range m.Values {
		line.Values = append(line.Values, benchfmt.Value{Value: v.Value, Unit: v.Unit})
		if isCalibration(m.Name, v.Unit) {
			r.current.Calibrations = append(r.current.Calibrations, Value{Name: m.Name, Run: t.Run, Value: v.Value, Unit: v.Unit})
		}
	}
	r.note(r.write.Write(line))
	mode := string(t.Mode)
	if t.To != "" {
		mode += "-to-" + string(t.To)
	}
	run := strconv.Itoa(t.Run)
	for i, v := range m.Samples {
		r.note(r.samples.out.Write([]string{m.Name, mode, run, strconv.Itoa(i), number(v), m.SampleUnit}))
	}
	r.note(r.samples.flush())
	if len(m.Attempts) == 0 {
		return
	}
	if r.gaps == nil {
		var err error
		if r.gaps, err = newCSV(r.dir, GapsFile, "pair", "services", "run", "client", "at_ms", "outcome"); err != nil {
			r.note(err)
			return
		}
	}
	for _, a := range m.Attempts {
		r.note(r.gaps.out.Write([]string{mode, strconv.Itoa(t.Services), run, a.Client, number(a.AtMs), a.Outcome}))
	}
	r.note(r.gaps.flush())
}

// evidence keeps a file of a trial that failed.
func (r *Recorder) evidence(t lab.Trial, name string, data []byte) {
	pair := strings.TrimSuffix(string(t.Mode)+"-to-"+string(t.To), "-to-")
	dir := filepath.Join(r.dir, FailuresDir, fmt.Sprintf("%s.%s.%d-services.run-%d.%s", strings.ReplaceAll(r.current.Kernel, "/", "_"), pair, t.Services, t.Run, t.KubeProxy))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		r.note(err)
		return
	}
	r.note(os.WriteFile(filepath.Join(dir, filepath.Base(name)), data, 0o666))
}

// isCalibration reports whether a figure is about the lab itself: the floor of its probe, or what its API server takes.
func isCalibration(name, unit string) bool {
	return unit == "ms/delivered" || unit == "delivered-%" ||
		(unit == "us/connect-p50" || unit == "us/connect-p99") && benchParts(name)["path"] == "floor"
}

// configuration is what a line of bench.txt was measured in.
func (r *Recorder) configuration(t lab.Trial) [][2]string {
	m := lab.Machine{}
	if r.current.Machine != nil {
		m = *r.current.Machine
	}
	return [][2]string{
		{"kernel", m.Release}, {"kube-proxy", t.KubeProxy}, {"nft", m.Tools["nft"]}, {"iptables", m.Tools["iptables"]}, {"ipset", m.Tools["ipset"]},
		{"cpu", m.CPU}, {"cores", strconv.Itoa(m.Cores)}, {"accelerator", m.Accelerator}, {"substrate", lab.DefaultSubstrate},
		{"userland", r.current.Userland}, {"min-sync-period", t.MinSyncPeriod.String()},
	}
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// note keeps the first error.
func (r *Recorder) note(err error) {
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("write the results to %s: %w", r.dir, err)
	}
}

// save writes bench.json anew, whole or not at all.
func (r *Recorder) save() {
	text, err := json.MarshalIndent(r.book, "", "  ")
	if err != nil {
		r.note(err)
		return
	}
	path := filepath.Join(r.dir, SettingsFile)
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o666); err != nil {
		r.note(err)
		return
	}
	r.note(os.Rename(path+".new", path))
}

// Close ends the folder. interrupted says why the benchmark did not come to its end, "" if it did.
func (r *Recorder) Close(interrupted string) (Book, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.book.Ended, r.book.Interrupted = time.Now().UTC().Truncate(time.Millisecond), interrupted
	r.save()
	r.note(r.figures.Close())
	r.note(r.samples.close())
	if r.gaps != nil {
		r.note(r.gaps.close())
	}
	b := r.book
	b.Machines, b.Failures = slices.Clone(b.Machines), slices.Clone(b.Failures)
	return b, r.err
}
