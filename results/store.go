package results

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"kplab/lab"
)

// The files of a run's folder.
const (
	runFile      = "run.json"
	eventsFile   = "events.jsonl"
	matrixFile   = "matrix.md"
	ledgerFile   = "ledger.md"
	junitFile    = "junit.xml"
	cellsDir     = "cells"
	machinesDir  = "machines"
	rewriteEvery = time.Second // of run.json; events.jsonl has everything at once
	maxRewriting = 50          // one fiftieth of the time goes into that at most, however large the run grows
)

var (
	// ErrExists is wrapped by the error of [Create] when the folder already holds a run.
	ErrExists = errors.New("already holds a run")
	// ErrInUse is wrapped by the errors of [Create] and [Recover] when a run that goes on writes to the folder.
	ErrInUse = errors.New("a run is still writing to it")
	// ErrClosed is returned by [Stream.Add] once the store is closed.
	ErrClosed = errors.New("the run is closed")
)

// Options describes a run before it begins.
type Options struct {
	ID      string      // "" = from the time it starts
	Command []string    // argv
	Host    Host        // see [ThisHost]
	Plan    []lab.Cell  // every cell that is to run, in the order of the matrix's rows
	Claims  []lab.Claim // the catalogue
	// Sabotage is what is broken on purpose in every cell, "" for nothing.
	Sabotage string
	// Shard is which part of a matrix this is ("2/5"), "" for all of it.
	Shard string
	// Overwrite lets the run replace one that the folder holds. Files that are not of kplab's making stay.
	Overwrite bool
	// Notify, if set, is told each event once it is stored, including those by which the store itself ends the cells of a
	// machine that died. It is called one event at a time and must not call the store.
	Notify func(lab.Event)
}

// Store writes one run to a folder while it happens. It is safe for use by several goroutines.
//
// If the folder cannot be written (full disk, no permission), the first error is returned by every later call, each with
// the same text; the run is then still kept in memory, and [Store.Close] returns it with that error.
type Store struct {
	mu     sync.Mutex
	dir    string
	root   *os.Root // nothing is ever written outside dir, whatever a machine calls its evidence
	events *os.File // also holds the lock that says that the run goes on
	rec    *recorder
	shelf  *shelf
	notify func(lab.Event)
	now    func() time.Time
	stale  bool          // run.json lacks the end of a cell
	saved  time.Time     // when run.json was last written
	cost   time.Duration // of writing it
	err    error         // the first failure to write
	closed bool
}

// Create begins a run in dir, which is created if it does not exist. A dir that already holds a run is refused with
// [ErrExists] unless o.Overwrite is set, since results are append-only; other files in dir are left alone.
func Create(dir string, o Options) (*Store, error) {
	return create(dir, o, time.Now)
}

func create(dir string, o Options, now func() time.Time) (_ *Store, err error) {
	s := &Store{dir: dir, shelf: newShelf(), notify: o.Notify, now: func() time.Time { return now().UTC().Truncate(time.Millisecond) }}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("create the results folder: %w: choose another folder", err)
	}
	if s.root, err = os.OpenRoot(dir); err != nil {
		return nil, fmt.Errorf("open the results folder: %w: choose another folder", err)
	}
	defer func() {
		if err != nil {
			s.root.Close()
		}
	}()
	if err := s.claim(o.Overwrite); err != nil {
		return nil, err
	}
	started := s.now()
	if o.ID == "" {
		o.ID = started.Format("20060102T150405.000Z")
	}
	run := &Run{Schema: Schema, ID: o.ID, Started: started, Host: o.Host, Command: o.Command, Sabotage: o.Sabotage, Shard: o.Shard, Dir: dir}
	for _, c := range o.Claims {
		run.Claims = append(run.Claims, ClaimResult{Claim: c, Verdict: Untested})
	}
	first := record{At: started, Event: lab.Event{Type: recordRun, Time: started}, Run: run, Plan: o.Plan}
	s.rec = newRecorder(first)
	s.append(first)
	s.save()
	if s.err != nil {
		s.events.Close()
		return nil, s.err
	}
	return s, nil
}

// claim makes the folder this run's own: it must hold no other run, or one that may be overwritten and is not going on.
func (s *Store) claim(overwrite bool) error {
	held := false
	for _, name := range []string{runFile, eventsFile} {
		if _, err := s.root.Lstat(name); err == nil {
			held = true
		}
	}
	if text, err := s.root.ReadFile(runFile); err == nil && !isRun(text) {
		return fmt.Errorf("%s holds a %s that is not kplab's: choose another folder", s.dir, runFile)
	}
	if held && !overwrite {
		return fmt.Errorf("%s %w: choose another folder, or say that it may be overwritten", s.dir, ErrExists)
	}
	var err error
	if s.events, err = s.root.OpenFile(eventsFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666); err != nil {
		return fmt.Errorf("begin a run in %s: %w: choose another folder", s.dir, err)
	}
	if err := lock(s.events); err != nil {
		s.events.Close()
		return fmt.Errorf("%s: %w: wait until it has ended, or choose another folder", s.dir, err)
	}
	if !held {
		return nil
	}
	err = s.events.Truncate(0)
	for _, name := range []string{runFile, matrixFile, ledgerFile, junitFile, cellsDir, machinesDir} {
		err = errors.Join(err, s.root.RemoveAll(name))
	}
	if err != nil {
		s.events.Close()
		return fmt.Errorf("overwrite the run in %s: %w", s.dir, err)
	}
	return nil
}

// lock takes the lock that a running store holds on its events.jsonl; the kernel drops it when the process dies.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrInUse
	}
	return err
}

// Stream takes the events of one machine.
type Stream struct {
	store *Store
	from  origin
	cells []lab.Cell
}

// Machine returns the stream of the machine that is given these cells (a [lab.Job]'s: of one kernel, userland and
// substrate). Several machines may send at once.
func (s *Store) Machine(cells []lab.Cell) *Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	if more := s.rec.unknown(cells); len(more) > 0 && !s.closed {
		rec := record{At: s.now(), Plan: more, Event: lab.Event{Type: recordPlan}}
		s.append(rec)
		s.rec.apply(rec)
	}
	m := &Stream{store: s, cells: cells}
	if len(cells) > 0 {
		m.from = originOf(cells[0])
	}
	return m
}

// Add takes the machine's next event. An error means that the results cannot be written, and that it is no use going on.
func (m *Stream) Add(ev lab.Event) error {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	return m.store.add(m.from, ev)
}

// Fail ends those of the machine's cells that have not ended: each becomes an error for the given reason. It is for a
// machine that could not be had, or died.
func (m *Stream) Fail(reason string) error {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	err := m.store.err
	only := m.cells
	if only == nil {
		only = []lab.Cell{}
	}
	for _, ev := range m.store.rec.unended(reason, only) {
		ev.Time = m.store.now()
		err = m.store.add(m.from, ev)
	}
	return err
}

// add stores one event. s.mu is held.
func (s *Store) add(from origin, ev lab.Event) error {
	if s.closed {
		return ErrClosed
	}
	rec := record{At: s.now(), From: &from, Event: ev}
	if ev.Type == lab.EventEvidence {
		folder := path.Join(machinesDir, from.id())
		if ev.Cell != "" {
			folder = path.Join(cellsDir, safeName(ev.Cell))
		}
		rec.Stored = s.shelf.place(folder, ev.Path)
		rec.Data = nil
		s.keep(rec.Stored, ev.Data)
	}
	s.append(rec)
	s.rec.apply(rec)
	s.stale = s.stale || ev.Type == lab.EventEnd
	if s.stale && s.now().Sub(s.saved) >= max(rewriteEvery, s.cost*maxRewriting) {
		s.save()
	}
	if s.notify != nil {
		s.notify(ev)
	}
	return s.err
}

// Run returns the run as it stands.
func (s *Store) Run() *Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.take()
}

// Close ends the run: cells that have not ended become errors for the given reason ("" = that the run ended before
// them), and run.json and the reports are written. It always returns the run; an error says that the folder lacks
// something of it. A second Close changes nothing.
func (s *Store) Close(reason string) (*Run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.rec.take(), s.err
	}
	for _, ev := range s.rec.unended(reason, nil) {
		ev.Time = s.now()
		s.add(originOf(ev.Result.Cell), ev)
	}
	end := record{At: s.now(), Event: lab.Event{Type: recordEnd, Time: s.now(), Message: reason}}
	s.append(end)
	s.rec.apply(end)
	run := s.rec.take()
	s.save()
	s.report(run)
	if err := s.events.Close(); err != nil {
		s.fail(err)
	}
	s.root.Close()
	s.closed = true
	return run, s.err
}

// report writes the files made for people and for CI.
func (s *Store) report(run *Run) {
	for _, r := range []struct {
		file   string
		render func(io.Writer) error
	}{
		{matrixFile, func(w io.Writer) error { return Markdown(w, run) }},
		{ledgerFile, func(w io.Writer) error { return LedgerMarkdown(w, run.Claims) }},
		{junitFile, func(w io.Writer) error { return JUnit(w, run) }},
	} {
		var text bytes.Buffer
		if err := r.render(&text); err != nil {
			s.fail(fmt.Errorf("render %s: %w", r.file, err))
		}
		s.replace(r.file, text.Bytes())
	}
}

// append adds a line to events.jsonl.
func (s *Store) append(rec record) {
	if s.err != nil {
		return
	}
	line, err := marshal(rec, "")
	if err == nil {
		_, err = s.events.Write(line)
	}
	if err != nil {
		s.fail(err)
	}
}

// save rewrites run.json.
func (s *Store) save() {
	began := time.Now()
	defer func() { s.cost = time.Since(began) }()
	text, err := marshal(s.rec.take(), "  ")
	if err != nil {
		s.fail(err)
		return
	}
	s.replace(runFile, text)
	s.stale, s.saved = false, s.now()
}

// keep writes a file of evidence.
func (s *Store) keep(name string, content []byte) {
	if s.err != nil {
		return
	}
	err := s.root.MkdirAll(path.Dir(name), 0o777)
	if err == nil {
		err = s.root.WriteFile(name, content, 0o666)
	}
	if err != nil {
		s.fail(err)
	}
}

// replace writes a file so that readers see either the old content or the new.
func (s *Store) replace(name string, content []byte) {
	if s.err != nil {
		return
	}
	temp := name + ".tmp"
	err := s.root.WriteFile(temp, content, 0o666)
	if err == nil {
		err = s.root.Rename(temp, name)
	}
	if err != nil {
		s.root.Remove(temp) // what is left of it is of no use, and a full disk needs the room
		s.fail(err)
	}
}

// fail keeps the first failure.
func (s *Store) fail(err error) {
	if s.err == nil {
		s.err = fmt.Errorf("the results in %s are cut short: %w: free some room or choose another folder", s.dir, err)
	}
}

// marshal is JSON with "->" and "<" as they are, and a line break at the end.
func marshal(v any, indent string) ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	return text.Bytes(), err
}

// Recover rebuilds the run of a store that was killed before it was closed, from dir's events.jsonl, and writes run.json
// and the reports as [Store.Close] does. Cells that had not ended become errors. A last line that was cut off is
// ignored. Recover on a run that was closed gives the same run again; on one that still goes on it is [ErrInUse].
func Recover(dir string) (_ *Run, err error) {
	s := &Store{dir: dir, now: time.Now}
	if s.root, err = os.OpenRoot(dir); err != nil {
		return nil, fmt.Errorf("recover a run: %w", err)
	}
	defer s.root.Close()
	if s.events, err = s.root.Open(eventsFile); err != nil {
		return nil, fmt.Errorf("recover the run in %s: %w", dir, err)
	}
	defer s.events.Close()
	if err := lock(s.events); err != nil {
		return nil, fmt.Errorf("recover the run in %s: %w", dir, err)
	}
	if s.rec, err = replay(s.events); err != nil {
		return nil, fmt.Errorf("recover a run: %s %w", filepath.Join(dir, eventsFile), err)
	}
	s.rec.run.Dir = dir
	run := s.rec.take()
	s.save()
	s.report(run)
	return run, s.err
}
