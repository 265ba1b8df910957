package probe

import (
	"context"
	"sync"
	"time"
)

const (
	talkBytes = 64 // what goes each way at a time, as of a small request
	dripBytes = 10 // how many a server is asked for at a time: other exchanges wait so long
)

// Talk is what goes over connections all the while, as over those that are in use. A connection on which nothing is sent does not notice
// what would reset it.
type Talk struct {
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu  sync.Mutex
	err error
}

// StartTalk has each connection make a small exchange every interval, the next when the last has ended, until it is lost, the talk is
// closed or ctx ends. Other exchanges on the connections take turns with it.
func StartTalk(ctx context.Context, conns []*Conn, interval time.Duration) *Talk {
	return start(ctx, conns, interval, func(ctx context.Context, c *Conn) (State, error) { return c.Exchange(ctx, talkBytes) })
}

// StartPush has the server of each connection send a byte every interval: a talk of the other end.
func StartPush(ctx context.Context, conns []*Conn, interval time.Duration) *Talk {
	return start(ctx, conns, interval, func(ctx context.Context, c *Conn) (State, error) { return c.Drip(ctx, dripBytes, interval) })
}

func start(ctx context.Context, conns []*Conn, interval time.Duration, exchange func(context.Context, *Conn) (State, error)) *Talk {
	t := &Talk{}
	ctx, t.cancel = context.WithCancel(ctx)
	for _, c := range conns {
		t.running.Go(func() { t.over(ctx, c, interval, exchange) })
	}
	return t
}

func (t *Talk) over(ctx context.Context, c *Conn, interval time.Duration, exchange func(context.Context, *Conn) (State, error)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		state, err := exchange(ctx, c)
		if ctx.Err() != nil {
			return // cut short: it says nothing
		}
		if err != nil {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.err = err
			return
		}
		if state == WasReset || state == Closed {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Err is why the talk over some connection could not go on, other than that the connection was lost.
func (t *Talk) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// Close ends the talk and leaves the connections open.
func (t *Talk) Close() error {
	t.cancel()
	t.running.Wait()
	return t.Err()
}
