// Package report publishes runs and figures: one page that stands alone, and the same for a pull request, for CI and for programs.
//
// [Write] leaves a folder:
//
//	index.html   everything on one page: no network, no script needed, light and dark
//	report.md    the same in short for a comment on a pull request, at most 60 kB
//	junit.xml    the cells for CI
//	report.json  a [Document]: the runs, what differs, the ledger and the figures, for programs
//	cells.csv    one row a cell
//	figures.csv  one row a figure of a run, as bench.txt has it
//	plots/       each plot as SVG, and its data as CSV beside it
//	evidence/    the evidence of the cells, if it was asked for
//
// What is absent from the runs is absent from the report: without figures there is no plot, no figures.csv and no chapter.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"kplab/results"
	"kplab/results/figures"
)

// The files of a report.
const (
	pageFile     = "index.html"
	markdownFile = "report.md"
	junitFile    = "junit.xml"
	jsonFile     = "report.json"
	cellsFile    = "cells.csv"
	figuresFile  = "figures.csv"
	plotsDir     = "plots"
	evidenceDir  = "evidence"
)

// Source is one folder of results: a run, figures, or both.
type Source struct {
	Dir     string
	Run     *results.Run // nil for a folder of figures only
	Figures *figures.Set // nil for a folder of a run only
}

// Read reads a folder of results, or a run.json. A folder that holds neither a run nor figures is an error.
func Read(dir string) (Source, error) {
	s := Source{Dir: dir}
	run, err := results.Read(dir)
	if err == nil {
		s.Run, s.Dir = run, run.Dir
	}
	set, noFigures := figures.Read(s.Dir)
	switch {
	case noFigures == nil:
		s.Figures = set
	case !errors.Is(noFigures, figures.ErrNone) && !errors.Is(noFigures, fs.ErrNotExist):
		return s, noFigures
	}
	if errors.Is(err, fs.ErrNotExist) {
		if s.Figures != nil {
			return s, nil
		}
		if _, there := os.Stat(filepath.Join(s.Dir, figures.BenchFile)); there == nil {
			return s, noFigures
		}
	}
	return s, err
}

// Options say what goes into a report and where.
type Options struct {
	Dir       string
	Catalogue results.Catalogue
	// Family names the family of a claim by its id.
	Family func(claim string) string
	// Evidence copies the cells' evidence into Dir. Otherwise the page links to it where it lies, as long as it lies there.
	Evidence bool
	// URL is where the page will be published; report.md links to it. "" = the file beside it.
	URL string
}

// ErrOccupied is wrapped by the error of [Write] for a folder that holds something else than a report.
var ErrOccupied = errors.New("holds files that are no report")

// Write writes a report of sources, none of which may be a sabotaged run, to o.Dir, which is created if it does not exist; a report that it holds is replaced.
func Write(o Options, sources ...Source) error {
	if err := replaceable(o.Dir); err != nil {
		return err
	}
	d, err := collect(o, sources)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.Dir, 0o777); err != nil {
		return fmt.Errorf("create the report's folder: %w: choose another folder", err)
	}
	root, err := os.OpenRoot(o.Dir)
	if err != nil {
		return fmt.Errorf("open the report's folder: %w: choose another folder", err)
	}
	defer root.Close()
	w := &writer{root: root, dir: o.Dir}
	w.remove(plotsDir, figuresFile, evidenceDir)
	if o.Evidence {
		w.evidence(d)
	}
	w.file(pageFile, d.page)
	w.file(markdownFile, d.markdown)
	w.file(jsonFile, d.json)
	if len(d.runs) > 0 {
		w.file(junitFile, func(out io.Writer) error { return results.JUnit(out, d.runs...) })
		w.file(cellsFile, d.cellsCSV)
	}
	if len(d.sets) > 0 {
		w.file(figuresFile, d.figuresCSV)
	}
	for _, p := range d.plots {
		if p.image != nil {
			w.bytes(path.Join(plotsDir, p.ID+".svg"), p.image.File())
		}
		w.bytes(path.Join(plotsDir, p.ID+".csv"), p.csv)
	}
	if w.err != nil {
		return fmt.Errorf("write the report to %s: %w: free some room or choose another folder", o.Dir, w.err)
	}
	return nil
}

// replaceable is nil for a folder that does not exist, is empty or holds a report.
func replaceable(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look into the report's folder: %w: choose another folder", err)
	}
	var d Document
	if text, err := os.ReadFile(filepath.Join(dir, jsonFile)); err == nil && json.Unmarshal(text, &d) == nil && d.Schema > 0 {
		return nil
	}
	return fmt.Errorf("%s %w: choose another folder", dir, ErrOccupied)
}

// writer writes the files of a report and keeps the first error.
type writer struct {
	root *os.Root
	dir  string
	err  error
}

func (w *writer) remove(names ...string) {
	for _, name := range names {
		if err := w.root.RemoveAll(name); err != nil && w.err == nil {
			w.err = err
		}
	}
}

func (w *writer) bytes(name string, content []byte) {
	w.file(name, func(out io.Writer) error {
		_, err := out.Write(content)
		return err
	})
}

func (w *writer) file(name string, render func(io.Writer) error) {
	if w.err != nil {
		return
	}
	if w.err = w.root.MkdirAll(path.Dir(name), 0o777); w.err != nil {
		return
	}
	f, err := w.root.Create(name)
	if err == nil {
		err = errors.Join(render(f), f.Close())
	}
	w.err = err
}

// evidence copies the evidence of every run's cells.
func (w *writer) evidence(d *data) {
	for i, run := range d.runs {
		for _, cell := range run.Cells {
			for _, name := range cell.Evidence {
				if w.err == nil {
					w.copy(filepath.Join(run.Dir, filepath.FromSlash(name)), path.Join(d.evidence[i], name))
				}
			}
		}
	}
}

func (w *writer) copy(from, to string) {
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return // the page names it without a link
	}
	if err != nil {
		w.err = err
		return
	}
	defer in.Close()
	w.file(to, func(out io.Writer) error {
		_, err := io.Copy(out, in)
		return err
	})
}

// data is what a report is made of.
type data struct {
	Options
	sources  []Source
	runs     []*results.Run // by the time they started
	evidence []string       // for each run, the folder that its evidence paths are relative to, seen from the page
	sets     []*figures.Set
	latest   *results.Run // every cell once, as the last run that had it saw it; without cells where there is no run
	layout   *results.Layout
	book     *results.Book
	plots    []*plot
	gaps     []gapGrid
	notes    []string // what could not be shown, and why
}

func collect(o Options, sources []Source) (*data, error) {
	d := &data{Options: o, sources: sources}
	for _, s := range sources {
		if s.Run != nil {
			d.runs = append(d.runs, s.Run)
		}
		if s.Figures != nil {
			d.sets = append(d.sets, s.Figures)
		}
	}
	slices.SortStableFunc(d.runs, func(a, b *results.Run) int { return a.Started.Compare(b.Started) })
	for i, run := range d.runs {
		base, err := d.evidenceBase(i, run)
		if err != nil {
			return nil, err
		}
		d.evidence = append(d.evidence, base)
	}
	d.layout = results.NewLayout(d.runs...)
	d.latest = results.Latest(d.runs...)
	d.book = results.NewBook(o.Catalogue, d.runs...)
	for _, set := range d.sets {
		for _, m := range set.Missing {
			if len(d.sets) > 1 {
				m = filepath.Base(set.Dir) + ": " + m
			}
			d.notes = append(d.notes, m)
		}
	}
	if err := d.draw(); err != nil {
		return nil, err
	}
	return d, nil
}

// evidenceBase is where the page finds a run's evidence.
func (d *data) evidenceBase(i int, run *results.Run) (string, error) {
	if d.Evidence {
		return path.Join(evidenceDir, fmt.Sprint(i+1)), nil
	}
	from, err := filepath.Abs(d.Dir)
	if err != nil {
		return "", err
	}
	to, err := filepath.Abs(run.Dir)
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(from, to)
	if err != nil {
		return "", err
	}
	return filepath.ToSlash(rel), nil
}
