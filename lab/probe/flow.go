package probe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Flow is a UDP flow: one source port that keeps asking who is there, or, one-way, keeps telling its numbers to whoever is.
type Flow struct {
	request  Request
	tag      string // that servers keep a one-way flow's numbers by; "" for one that asks
	began    time.Time
	interval time.Duration
	conn     *net.UDPConn
	watch    *icmpWatch
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	count   FlowCount
	tried   []datagram    // by number, from 1
	changed chan struct{} // closed and replaced at each change of count
}

// datagram is one of a flow.
type datagram struct {
	started time.Duration // since the flow began
	arrived bool          // it was answered, or a receiver has it
	who     string        // by which endpoint
}

// FlowCount is what a flow has seen.
type FlowCount struct {
	Tried    int            // datagrams given to the kernel
	Sent     int            // datagrams that the kernel took
	Answered map[string]int // answers by endpoint
	Errors   map[string]int // ICMP and local errors as an [Outcome] prints: "refused (icmp port-unreachable)"
	Last     string         // endpoint of the latest answer
}

// Since is what came after an earlier count of the same flow.
func (c FlowCount) Since(earlier FlowCount) FlowCount {
	return FlowCount{Tried: c.Tried - earlier.Tried, Sent: c.Sent - earlier.Sent, Answered: without(c.Answered, earlier.Answered), Errors: without(c.Errors, earlier.Errors), Last: c.Last}
}

func without(counts, earlier map[string]int) map[string]int {
	left := map[string]int{}
	for k, n := range counts {
		if n -= earlier[k]; n > 0 {
			left[k] = n
		}
	}
	return left
}

// Stream starts a flow that sends a datagram at once and then one every interval, until it is closed or ctx ends.
// r.Network is "udp"; its Timeout has no meaning but must be set.
func Stream(ctx context.Context, ns Netns, r Request, interval time.Duration) (*Flow, error) {
	return startFlow(ctx, ns, r, interval, "")
}

func startFlow(ctx context.Context, ns Netns, r Request, interval time.Duration, tag string) (*Flow, error) {
	if r.Network != "udp" || interval <= 0 {
		return nil, fmt.Errorf("stream %s: need network udp and an interval", r)
	}
	if err := r.validate(); err != nil {
		return nil, err
	}
	watch, err := watchICMP(ns, r.Target.Addr())
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", r, err)
	}
	f := &Flow{request: r, tag: tag, interval: interval, began: time.Now(), watch: watch, count: FlowCount{Answered: map[string]int{}, Errors: map[string]int{}}, changed: make(chan struct{})}
	if err := f.connect(ns); err != nil {
		watch.close()
		return nil, fmt.Errorf("stream %s: %w", r, err)
	}
	ctx, f.cancel = context.WithCancel(ctx)
	f.running.Go(func() { f.send(ctx) })
	f.running.Go(f.receive)
	return f, nil
}

func (f *Flow) connect(ns Netns) error {
	typ, proto := protocol(f.request.Network)
	fd, err := open(ns, domain(f.request.Target.Addr()), typ, proto)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), "udp")
	if err := bindSource(fd, f.request); err != nil {
		file.Close()
		return err
	}
	if err := unix.Connect(fd, sockaddr(f.request.Target)); err != nil {
		file.Close()
		return os.NewSyscallError("connect", err)
	}
	local, err := localAddr(fd)
	if err != nil {
		file.Close()
		return err
	}
	c, err := netConn(file)
	if err != nil {
		return err
	}
	f.conn = c.(*net.UDPConn)
	f.watch.start(proto, local, f.request.Target, func(e *icmpError) {
		f.update(func(c *FlowCount) { c.Errors[e.outcome().String()]++ })
	})
	return nil
}

// Count is what the flow has seen so far.
func (f *Flow) Count() FlowCount {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.count
	c.Answered, c.Errors = maps.Clone(c.Answered), maps.Clone(c.Errors)
	return c
}

// Wait returns when enough says so, with the count that it saw, or with ctx's error and the latest count.
func (f *Flow) Wait(ctx context.Context, enough func(FlowCount) bool) (FlowCount, error) {
	for {
		f.mu.Lock()
		changed := f.changed
		f.mu.Unlock()
		c := f.Count()
		if enough(c) {
			return c, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return c, fmt.Errorf("stream %s: sent %d, answered %v, errors %v: %w", f.request, c.Sent, c.Answered, c.Errors, context.Cause(ctx))
		}
	}
}

// Close ends the flow.
func (f *Flow) Close() error {
	f.cancel()
	f.running.Wait()
	f.watch.close()
	return nil
}

func (f *Flow) update(change func(*FlowCount)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.count)
	close(f.changed)
	f.changed = make(chan struct{})
}

// send ends, and makes receive end, when ctx does.
func (f *Flow) send(ctx context.Context) {
	defer f.conn.Close()
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	for id := 1; ; id++ {
		f.update(func(c *FlowCount) { f.sendOne(c, id) }) // under the lock: no answer is counted before its datagram
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (f *Flow) sendOne(c *FlowCount, id int) {
	request := []byte(whoRequest + " " + strconv.Itoa(id))
	if f.tag != "" {
		request = []byte(tellRequest + " " + f.tag + " " + strconv.Itoa(id))
	}
	c.Tried++
	f.tried = append(f.tried, datagram{started: time.Since(f.began)})
	_, err := f.conn.Write(request)
	if errors.Is(err, unix.ECONNREFUSED) { // about an earlier datagram; this one was not sent
		_, err = f.conn.Write(request)
	}
	switch o, known := errnoOutcome(err); {
	case err == nil:
		c.Sent++
	case known:
		c.Errors[o.String()]++
	case errors.Is(err, unix.ECONNREFUSED): // the watch has its name
	default:
		c.Errors[err.Error()]++
	}
}

func (f *Flow) receive() {
	buf := make([]byte, 64<<10)
	for {
		n, err := f.conn.Read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error, reported once; the watch has its name
		}
		o, who := reachable(buf[:n])
		name := o.Endpoint
		if name == "" {
			name = o.Detail
		}
		id, _ := strconv.Atoi(who.ID)
		f.update(func(c *FlowCount) {
			c.Answered[name]++
			c.Last = name
			f.arrived(id, name)
		})
	}
}

// arrived notes, under the lock, who had a datagram; another number than that of one is nothing.
func (f *Flow) arrived(number int, who string) {
	if number >= 1 && number <= len(f.tried) {
		f.tried[number-1].arrived, f.tried[number-1].who = true, who
	}
}

// Between returns what is known of the datagrams numbered from first to last, in their order: reachable where one was answered or, of
// a one-way flow, a receiver was found to have it; else timeout.
func (f *Flow) Between(first, last int) []Attempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []Attempt
	for n := max(first, 1); n <= min(last, len(f.tried)); n++ {
		d := f.tried[n-1]
		a := Attempt{Number: n, Started: d.started, Outcome: Outcome{Kind: Timeout}}
		if d.arrived {
			a.Outcome = Outcome{Kind: Reachable, Endpoint: d.who}
		}
		all = append(all, a)
	}
	return all
}

// Interval is the time between two datagrams: what a gap is known to.
func (f *Flow) Interval() time.Duration { return f.interval }
