package results

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"kplab/lab"
)

// screen is what a terminal shows that knows "\r", line breaks, "up" and "erase below".
type screen struct {
	lines []string
	row   int
}

func (s *screen) Write(text []byte) (int, error) {
	rest := string(text)
	for rest != "" {
		var up int
		if n, _ := fmt.Sscanf(rest, "\x1b[%dA", &up); n == 1 {
			s.row -= up
			rest = rest[strings.Index(rest, "A")+1:]
			continue
		}
		if after, ok := strings.CutPrefix(rest, "\r\x1b[J"); ok {
			s.lines = s.lines[:s.row]
			rest = after
			continue
		}
		line, after, _ := strings.Cut(rest, "\n")
		s.lines = append(s.lines[:s.row], line)
		s.row++
		rest = after
	}
	return len(text), nil
}

func progressPlan() []lab.Cell {
	vm, host := lab.Kernel{Name: "debian-12"}, lab.Kernel{Name: "host"}
	return []lab.Cell{
		cell("clusterip-basics", lab.IPVS, vm, "1.37.2"), cell("nodeport-localhost", lab.IPVS, vm, "1.37.2"),
		cell("clusterip-basics", lab.NFTables, host, "1.37.2"), cell("nodeport-localhost", lab.NFTables, host, "1.37.2"),
	}
}

func TestProgressOnATerminal(t *testing.T) {
	clock := &watch{t: start}
	wait := func(d time.Duration) { clock.t = clock.t.Add(d) }
	var s screen
	p := newProgress(&s, ProgressOptions{Plan: progressPlan(), Terminal: true, Width: func() int { return 70 }}, clock.now)
	send := func(ev lab.Event) {
		p.Add(ev)
		for _, l := range s.lines {
			if strings.HasPrefix(l, " ") {
				assert.Less(t, utf8.RuneCountInString(l), 70, l)
			}
		}
	}
	shows := func(want ...string) {
		t.Helper()
		p.draw()
		assert.Equal(t, want, s.lines)
	}
	c := progressPlan()
	shows("0 of 4 cells done, 0s gone")
	send(lab.Event{Type: lab.EventReady, Machine: &lab.Machine{Release: "6.1.0-39", Accelerator: "tcg", Cores: 2, BootMs: 5200, Unit: 6.5}})
	send(lab.Event{Type: lab.EventStart, Cell: c[0].ID()})
	send(lab.Event{Type: lab.EventStart, Cell: c[2].ID()})
	send(lab.Event{Type: lab.EventStep, Cell: c[2].ID(), Message: "probe ext tcp n1.secondary:nodeport/web"})
	wait(2 * time.Second)
	const up = "kernel 6.1.0-39 (tcg) is up: 2 cores, booted in 5.2s, 6.5 times slower than the reference"
	shows(up,
		"0 of 4 cells done, 2s gone",
		"     2s  clusterip-basics  ipvs / debian-12 / 1.37.2",
		"     2s  clusterip-basics  nftables / host / 1.37.2  probe ext tcp n…")
	send(lab.Event{Type: lab.EventEnd, Cell: c[2].ID(), Result: &lab.Result{Cell: c[2], Verdict: lab.Pass, DurationMs: 2000}})
	send(lab.Event{Type: lab.EventStart, Cell: c[3].ID()})
	wait(4 * time.Second)
	send(lab.Event{Type: lab.EventEnd, Cell: c[0].ID(), Result: &lab.Result{Cell: c[0], Verdict: lab.Fail, Reason: "a.txtar:9: broken"}})
	wait(time.Second)
	const failed = "[2/4] fail  clusterip-basics  ipvs / debian-12 / 1.37.2  6.0s: a.txtar:9: broken"
	shows(up, failed,
		"2 of 4 cells done, 1 fail, 7s gone, about 5s to go",
		"     5s  nodeport-localhost  nftables / host / 1.37.2")
	p.Close()
	assert.Equal(t, []string{up, failed}, s.lines)
	p.Add(lab.Event{Type: lab.EventLog, Message: "late"})
	assert.Len(t, s.lines, 2)
}

func TestProgressElsewhere(t *testing.T) {
	clock := &watch{t: start}
	var b bytes.Buffer
	p := newProgress(&b, ProgressOptions{Plan: progressPlan()}, clock.now)
	c := progressPlan()
	p.Add(lab.Event{Type: lab.EventReady, Machine: &lab.Machine{Release: "6.18.5", Accelerator: "host", Cores: 2, Unit: 1}})
	p.Add(lab.Event{Type: lab.EventLog, Message: "boot 1 panicked;\x1b[2J trying again\n"})
	for i, v := range []lab.Verdict{lab.Pass, lab.Fail, lab.Skip, lab.Error} {
		p.Add(lab.Event{Type: lab.EventStart, Cell: c[i].ID()})
		p.Add(lab.Event{Type: lab.EventStep, Cell: c[i].ID(), Message: "kube-proxy start"})
		clock.t = clock.t.Add(1200 * time.Millisecond)
		r := lab.Result{Cell: c[i], Verdict: v, DurationMs: 1200}
		if v != lab.Pass {
			r.Reason = "the reason\nof it"
		}
		p.Add(lab.Event{Type: lab.EventEnd, Cell: c[i].ID(), Result: &r})
	}
	p.Close()
	assert.Equal(t, strings.Join([]string{
		"kernel 6.18.5 (host) is up: 2 cores",
		"boot 1 panicked;�[2J trying again",
		"[1/4] pass  clusterip-basics  ipvs / debian-12 / 1.37.2  1.2s",
		"[2/4] fail  nodeport-localhost  ipvs / debian-12 / 1.37.2  1.2s: the reason of it",
		"[3/4] skip  clusterip-basics  nftables / host / 1.37.2  1.2s: the reason of it",
		"[4/4] error nodeport-localhost  nftables / host / 1.37.2  1.2s: the reason of it",
		"",
	}, "\n"), b.String())
}

func TestProgressConcurrently(t *testing.T) {
	var s screen
	p := NewProgress(&s, ProgressOptions{Plan: progressPlan(), Terminal: true})
	var wg sync.WaitGroup
	for _, c := range progressPlan() {
		wg.Go(func() {
			for range 50 {
				p.Add(lab.Event{Type: lab.EventStart, Cell: c.ID()})
				p.Add(lab.Event{Type: lab.EventEnd, Cell: c.ID(), Result: &lab.Result{Cell: c, Verdict: lab.Fail, Reason: "x"}})
			}
		})
	}
	wg.Wait()
	p.Close()
	p.Close()
	assert.Len(t, s.lines, 4*50)
}
