package results

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"kplab/lab"
)

// ProgressOptions says what a run's progress is drawn on.
type ProgressOptions struct {
	Plan []lab.Cell
	// Terminal draws lines that are redrawn in place; otherwise each line is written once. Callers find out with
	// term.IsTerminal of golang.org/x/term.
	Terminal bool
	// Width returns the terminal's present width in columns; nil = 80.
	Width func() int
	Color bool
}

// Progress follows a run by its events and shows which cells run, how many are left, the time gone and the time to go.
//
// On a terminal a few lines at the bottom are redrawn; cells that failed or erred, and what machines say, are written
// above them and stay. Elsewhere there is one line for each cell that ends:
//
//	[ 3/42] pass   nodeport-localhost  nftables / host 6.18.5 / 1.37.2  1.2s
//
// with the reason at the end of all but a pass. It is safe for use by several goroutines. What w does with the text is
// not the run's concern: errors of w are ignored.
type Progress struct {
	w   io.Writer
	o   ProgressOptions
	now func() time.Time

	mu      sync.Mutex
	started time.Time
	cells   map[string]lab.Cell
	total   int
	ended   map[string]lab.Verdict
	running []*runningCell
	lanes   map[origin]*lane
	unusual bool // the plan's userlands or substrates are worth naming
	drawn   int  // lines on the screen that are to be redrawn
	drawnAt time.Time
	closed  bool

	stop chan struct{} // ends the goroutine that redraws
	done chan struct{}
}

// runningCell is a cell between its start and its end.
type runningCell struct {
	id    string
	begun time.Time
	step  string // the line of the script that it is at
}

// lane is the cells of one machine, for which the time to go is estimated apart: a VM is slower than the host.
type lane struct {
	total, ended int
	begun        time.Time // of its first cell
	last         time.Time // when a cell last ended
}

const (
	redrawEvery = 250 * time.Millisecond
	maxRunning  = 4 // running cells shown
)

// NewProgress begins to show a run. Close must be called.
func NewProgress(w io.Writer, o ProgressOptions) *Progress {
	p := newProgress(w, o, time.Now)
	if o.Terminal {
		p.stop, p.done = make(chan struct{}), make(chan struct{})
		go p.redraw()
	}
	return p
}

func newProgress(w io.Writer, o ProgressOptions, now func() time.Time) *Progress {
	p := &Progress{
		w: w, o: o, now: now, started: now(), total: len(o.Plan),
		cells: map[string]lab.Cell{}, ended: map[string]lab.Verdict{}, lanes: map[origin]*lane{},
	}
	var settings []Column
	for _, c := range o.Plan {
		p.cells[c.ID()] = c
		p.lane(c).total++
		settings = append(settings, columnOf(c))
	}
	p.unusual = unusual(settings)
	return p
}

func (p *Progress) lane(c lab.Cell) *lane {
	o := originOf(c)
	if p.lanes[o] == nil {
		p.lanes[o] = new(lane)
	}
	return p.lanes[o]
}

// redraw keeps the clock going between events.
func (p *Progress) redraw() {
	defer close(p.done)
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
			p.mu.Lock()
			p.draw()
			p.mu.Unlock()
		}
	}
}

// Add takes the next event of any machine.
func (p *Progress) Add(ev lab.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	switch ev.Type {
	case lab.EventReady:
		if ev.Machine != nil {
			p.print(readyLine(*ev.Machine))
		}
	case lab.EventLog:
		p.print(brief(ev.Message))
	case lab.EventStart:
		p.start(ev.Cell)
	case lab.EventStep:
		if i := p.find(ev.Cell); i >= 0 {
			p.running[i].step = oneLine(ev.Message)
		}
	case lab.EventEnd:
		p.end(ev)
	default:
		return
	}
	if p.now().Sub(p.drawnAt) >= redrawEvery {
		p.draw()
	}
}

// Close removes what is redrawn and ends the progress.
func (p *Progress) Close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.closed = true
	p.write("")
	p.mu.Unlock()
	if p.stop != nil {
		close(p.stop)
		<-p.done
	}
}

func (p *Progress) find(id string) int {
	return slices.IndexFunc(p.running, func(r *runningCell) bool { return r.id == id })
}

func (p *Progress) start(id string) {
	if i := p.find(id); i >= 0 {
		p.running = slices.Delete(p.running, i, i+1)
	}
	p.running = append(p.running, &runningCell{id: id, begun: p.now()})
	if l := p.lane(p.cells[id]); l.begun.IsZero() {
		l.begun = p.now()
	}
}

func (p *Progress) end(ev lab.Event) {
	r := lab.Result{Verdict: lab.Error}
	if ev.Result != nil {
		r = *ev.Result
	}
	if r.Scenario == "" {
		r.Cell = p.cells[ev.Cell]
	}
	if r.Scenario == "" {
		r.Scenario = ev.Cell
	}
	judge(&r)
	if i := p.find(ev.Cell); i >= 0 {
		if r.DurationMs == 0 {
			r.DurationMs = p.now().Sub(p.running[i].begun).Milliseconds()
		}
		p.running = slices.Delete(p.running, i, i+1)
	}
	if _, again := p.ended[ev.Cell]; !again {
		l := p.lane(r.Cell)
		l.ended++
		l.last = p.now()
	}
	p.ended[ev.Cell] = r.Verdict
	if _, known := p.cells[ev.Cell]; !known {
		p.cells[ev.Cell] = r.Cell
		p.total++
	}
	if !p.o.Terminal || r.Verdict == lab.Fail || r.Verdict == lab.Error {
		p.print(p.endLine(r))
	}
}

func (p *Progress) label(c lab.Cell) string {
	return strings.Join(columnOf(c).header(p.unusual), " / ")
}

func (p *Progress) endLine(r lab.Result) string {
	o := TextOptions{Color: p.o.Color}
	total := fmt.Sprint(p.total)
	s := fmt.Sprintf("[%*d/%s] %s %s  %s", len(total), len(p.ended), total,
		o.verdict(r.Verdict, pad(string(r.Verdict), 5)), r.Scenario, p.label(r.Cell))
	if r.Verdict != lab.Skip || r.DurationMs > 0 {
		s += "  " + Seconds(r.DurationMs)
	}
	if r.Verdict != lab.Pass {
		s += ": " + brief(r.Reason)
	}
	return s
}

func readyLine(m lab.Machine) string {
	s := "kernel " + m.Release
	if m.Accelerator != "" {
		s += " (" + m.Accelerator + ")"
	}
	s += fmt.Sprintf(" is up: %d cores", m.Cores)
	if m.BootMs > 0 {
		s += ", booted in " + Seconds(m.BootMs)
	}
	if m.Unit > 1 {
		s += fmt.Sprintf(", %.1f times slower than the reference", m.Unit)
	}
	return s
}

// print writes a line that stays.
func (p *Progress) print(line string) { p.write(line + "\n") }

// draw brings the lines that are redrawn up to date.
func (p *Progress) draw() {
	if p.o.Terminal && !p.closed {
		p.write("")
	}
}

// write replaces the lines that are redrawn by text that stays, and writes them anew below it, all at once so that
// nothing flickers.
func (p *Progress) write(text string) {
	var b strings.Builder
	if p.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", p.drawn)
		p.drawn = 0
	}
	b.WriteString(text)
	if p.o.Terminal && !p.closed {
		width := 80
		if p.o.Width != nil {
			width = max(p.o.Width(), minWidth)
		}
		for _, l := range p.lines() {
			// A line as wide as the terminal would wrap on some, and the next redraw would miss a line.
			b.WriteString(fit(l, width-1) + "\n")
			p.drawn++
		}
		p.drawnAt = p.now()
	}
	io.WriteString(p.w, b.String())
}

// lines is the state of the run: one line for all, then one for each running cell.
func (p *Progress) lines() []string {
	now := p.now()
	var n Count
	for _, v := range p.ended {
		n.add(v)
	}
	status := fmt.Sprintf("%d of %d cells done", len(p.ended), p.total)
	if n.Fail > 0 {
		status += fmt.Sprintf(", %d fail", n.Fail)
	}
	if n.Error > 0 {
		status += fmt.Sprintf(", %d error", n.Error)
	}
	status += ", " + clock(now.Sub(p.started)) + " gone"
	if eta, ok := p.eta(); ok {
		status += ", about " + clock(eta) + " to go"
	}
	lines := []string{status}
	for i, r := range p.running {
		if i == maxRunning && len(p.running) > maxRunning+1 {
			lines = append(lines, fmt.Sprintf("  and %d more", len(p.running)-i))
			break
		}
		c := p.cells[r.id]
		name := r.id
		if c.Scenario != "" {
			name = c.Scenario + "  " + p.label(c)
		}
		lines = append(lines, strings.TrimRight(fmt.Sprintf("  %5s  %s  %s", clock(now.Sub(r.begun)), name, r.step), " "))
	}
	return lines
}

// eta is the time to go: that of the machine that will take longest at its own pace so far. It is unknown while a
// machine that has work has not ended a cell.
func (p *Progress) eta() (time.Duration, bool) {
	var longest time.Duration
	left := false
	for _, l := range p.lanes {
		if l.ended >= l.total {
			continue
		}
		left = true
		if l.ended == 0 || l.begun.IsZero() {
			return 0, false
		}
		pace := l.last.Sub(l.begun) / time.Duration(l.ended)
		longest = max(longest, pace*time.Duration(l.total-l.ended)-p.now().Sub(l.last))
	}
	return longest, left
}

// clock is a duration in whole seconds: "7s", "1m04s".
func clock(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	if s < 60 {
		return fmt.Sprintf("%ds", s)
	}
	return fmt.Sprintf("%dm%02ds", s/60, s%60)
}
