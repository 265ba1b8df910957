package probe

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Series makes a new request every interval, each from a new source port, whether or not those before have ended: what clients meet
// while something changes.
type Series struct {
	request  Request
	interval time.Duration
	began    time.Time
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	started int
	ended   []Attempt
	err     error
	changed chan struct{} // closed and replaced at each change
}

// Attempt is one request of a Series.
type Attempt struct {
	Number  int           // from 1, in the order of their starts
	Started time.Duration // since the series began
	Took    time.Duration
	Outcome Outcome
}

// maxAttempts bounds a series: half an hour of one every 20 ms.
const maxAttempts = 90_000

// StartSeries starts a series, which goes on until it is closed, ctx ends or an attempt's outcome cannot be told. r.Timeout bounds each attempt.
func StartSeries(ctx context.Context, ns Netns, r Request, interval time.Duration) (*Series, error) {
	if interval <= 0 {
		return nil, fmt.Errorf("series %s: need an interval", r)
	}
	if err := r.validate(); err != nil {
		return nil, err
	}
	s := &Series{request: r, interval: interval, began: time.Now(), changed: make(chan struct{})}
	ctx, s.cancel = context.WithCancel(ctx)
	s.running.Go(func() { s.run(ctx, ns) })
	return s, nil
}

func (s *Series) run(ctx context.Context, ns Netns) {
	tick := time.NewTicker(s.interval)
	defer tick.Stop()
	for number := 1; number <= maxAttempts; number++ {
		s.update(func() { s.started = number })
		s.running.Go(func() { s.attempt(ctx, ns, number) })
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	s.update(func() { s.err = fmt.Errorf("series %s: ended after %d attempts", s.request, maxAttempts) })
}

func (s *Series) attempt(ctx context.Context, ns Netns, number int) {
	start := time.Now()
	o, err := Dial(ctx, ns, s.request)
	if ctx.Err() != nil {
		return // cut short by the series' end: it says nothing
	}
	s.update(func() {
		if err != nil {
			s.err = err
			s.cancel()
			return
		}
		s.ended = append(s.ended, Attempt{Number: number, Started: start.Sub(s.began), Took: time.Since(start), Outcome: o})
	})
}

func (s *Series) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Started is how many attempts have been started.
func (s *Series) Started() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started
}

// Interval is the time between two starts: what the gap is known to.
func (s *Series) Interval() time.Duration { return s.interval }

// Between waits until the attempts numbered from first to last have ended, and returns them in the order of their starts.
func (s *Series) Between(ctx context.Context, first, last int) ([]Attempt, error) {
	for {
		s.mu.Lock()
		changed, err := s.changed, s.err
		var some []Attempt
		for _, a := range s.ended {
			if first <= a.Number && a.Number <= last {
				some = append(some, a)
			}
		}
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if len(some) == last-first+1 {
			slices.SortFunc(some, func(a, b Attempt) int { return a.Number - b.Number })
			return some, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("series %s: %d of %d attempts have ended: %w", s.request, len(some), last-first+1, context.Cause(ctx))
		}
	}
}

// Close ends the series and the attempts that are under way.
func (s *Series) Close() error {
	s.cancel()
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Gap is the time in which attempts failed: from the start of the first that failed to the start of the first that succeeded after
// the last failure. It is exact to the series' interval. open is set where none has succeeded since. Both are zero if none failed.
func Gap(attempts []Attempt) (gap time.Duration, open bool) {
	failed := func(a Attempt) bool { return a.Outcome.Kind != Reachable }
	first := slices.IndexFunc(attempts, failed)
	if first < 0 {
		return 0, false
	}
	last := first
	for i := range attempts {
		if failed(attempts[i]) {
			last = i
		}
	}
	if last == len(attempts)-1 {
		return attempts[last].Started + attempts[last].Took - attempts[first].Started, true
	}
	return attempts[last+1].Started - attempts[first].Started, false
}
