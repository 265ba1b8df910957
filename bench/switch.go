package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"kplab/lab"
)

const (
	attemptEvery  = 5 * time.Millisecond
	attemptAnswer = 200 * time.Millisecond // on the reference machine; after it an attempt is a timeout
	beforeSwitch  = 300 * time.Millisecond // of clients alone, which must all succeed
	afterSwitch   = 500 * time.Millisecond // of clients alone, once the other mode is synced
)

// The clients of a switch.
const (
	clientClusterIP   = "clusterip"
	clientNodePort    = "nodeport"
	clientEstablished = "established"
)

func (s *site) pair() string { return string(s.trial.Mode) + "-to-" + string(s.trial.To) }

func (s *site) switchName(client string) string {
	return fmt.Sprintf("Switch/pair=%s/client=%s/services=%d", s.pair(), client, s.trial.Services)
}

// switchMode stops kube-proxy and starts it in the other mode, as a rollout does on a node, while clients go on: they open connections to
// a ClusterIP and to a NodePort, and talk over one that is old.
func (s *site) switchMode(ctx context.Context, keep func(lab.Measurement)) error {
	svc := s.services[len(s.services)-1] // one with a NodePort
	c := &clients{site: s, targets: map[string]netip.AddrPort{clientClusterIP: svc.clusterIP(), clientNodePort: s.nodePort(svc)}}
	err := s.switchWhile(ctx, c)
	if err == nil {
		err = s.sound(ctx, s.services)
	}
	if err != nil {
		return report(keep, lab.Measurement{Name: s.switchName(clientClusterIP)}, err)
	}
	for _, client := range []string{clientClusterIP, clientNodePort, clientEstablished} {
		var attempts []lab.Attempt
		for _, a := range c.attempts {
			if a.Client == client {
				attempts = append(attempts, a)
			}
		}
		keep(lab.Measurement{Name: s.switchName(client), Iters: len(attempts), Values: gapValues(attempts), Attempts: attempts})
	}
	return nil
}

// switchWhile does the switch while the clients run.
func (s *site) switchWhile(ctx context.Context, c *clients) error {
	ctx, cancel := s.within(ctx)
	defer cancel()
	ended := make(chan error, 1)
	halt, stop := context.WithCancel(ctx)
	defer stop()
	if err := c.establish(ctx); err != nil {
		return err
	}
	defer c.close()
	go func() { // ends with halt
		ended <- s.client.Do(func() error { return c.run(halt) })
	}()
	pause := func(d time.Duration) error {
		select {
		case <-time.After(s.deadlines.Of(d)):
			return nil
		case err := <-ended:
			ended <- err
			return errors.Join(err, errors.New("the clients have ended before the switch had"))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	err := func() error {
		if err := pause(beforeSwitch); err != nil {
			return err
		}
		c.zero.Store(time.Now().UnixNano())
		if err := s.proxy.Stop(ctx); err != nil {
			return err
		}
		if err := s.proxy.Start(ctx, s.options(s.trial.To)); err != nil {
			return err
		}
		return pause(afterSwitch)
	}()
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	return c.relative()
}

// clients try, all on the client pod's thread.
type clients struct {
	site     *site
	targets  map[string]netip.AddrPort
	zero     atomic.Int64 // when kube-proxy was told to stop, in ns since 1970
	attempts []lab.Attempt
	flying   []flight

	talk, answer int // the old connection: the client's end and the server's
	echoing      sync.WaitGroup
	words        []time.Time // bytes sent and not come back
	dead         bool
}

// flight is an attempt whose client is known.
type flight struct {
	attempt
	client string
}

// establish opens the connection that is to become old, and answers on it.
func (c *clients) establish(ctx context.Context) error {
	c.talk, c.answer = -1, -1
	s := c.site
	err := s.client.Do(func() error {
		s.sink.drain()
		a, err := begin(c.targets[clientClusterIP])
		if err != nil {
			return err
		}
		if err := a.await(s.deadlines.Of(time.Second)); err != nil {
			a.end()
			return err
		}
		c.talk = a.fd
		return nil
	})
	if err != nil {
		return fmt.Errorf("open a connection to %s: %w", c.targets[clientClusterIP], err)
	}
	patient, cancel := context.WithTimeout(ctx, s.deadlines.Of(time.Second))
	defer cancel()
	if c.answer, err = s.sink.accept(patient); err != nil {
		return err
	}
	c.echoing.Go(func() { // ends when close shuts the connection down
		b := make([]byte, 256)
		for {
			n, err := unix.Read(c.answer, b)
			if err == unix.EINTR {
				continue
			}
			if err != nil || n == 0 {
				return
			}
			if _, err := unix.Write(c.answer, b[:n]); err != nil {
				return
			}
		}
	})
	return nil
}

func (c *clients) close() {
	if c.answer >= 0 {
		_ = unix.Shutdown(c.answer, unix.SHUT_RDWR)
		c.echoing.Wait()
		unix.Close(c.answer)
	}
	if c.talk >= 0 {
		unix.Close(c.talk)
	}
}

// run tries until ctx ends; what is under way then has until its answer is overdue.
func (c *clients) run(ctx context.Context) error {
	defer func() {
		for _, f := range c.flying {
			f.end()
		}
		c.site.sink.drain()
	}()
	patience := c.site.deadlines.Of(attemptAnswer)
	var next time.Time
	for {
		now := time.Now()
		over := ctx.Err() != nil
		if over && len(c.flying) == 0 && (len(c.words) == 0 || c.dead) {
			return nil
		}
		if !over && !now.Before(next) {
			next = now.Add(attemptEvery)
			for _, client := range []string{clientClusterIP, clientNodePort} {
				a, err := begin(c.targets[client])
				if err != nil {
					return err
				}
				c.flying = append(c.flying, flight{a, client})
			}
			if err := c.say(now); err != nil {
				return err
			}
		}
		c.flying = slices.DeleteFunc(c.flying, func(f flight) bool {
			pending, failure := f.state()
			if pending && time.Since(f.began) < patience {
				return false
			}
			if pending {
				failure = errNoAnswer
			}
			f.end()
			c.came(f.client, f.began, failure)
			return true
		})
		c.hear(patience)
		c.site.sink.drain()
		nap(tick)
	}
}

// came records an attempt's outcome. Times are since 1970 until relative.
func (c *clients) came(client string, began time.Time, failure error) {
	c.attempts = append(c.attempts, lab.Attempt{Client: client, AtMs: float64(began.UnixNano()), Outcome: outcome(failure)})
}

// say sends a byte over the old connection.
func (c *clients) say(now time.Time) error {
	if c.dead {
		return nil
	}
	_, err := unix.Write(c.talk, []byte{'.'})
	switch {
	case err == nil:
		c.words = append(c.words, now)
	case err == unix.EAGAIN || err == unix.EINTR:
	default:
		c.dead = true
		c.came(clientEstablished, now, err)
	}
	return nil
}

// hear takes in what has come back over the old connection. A byte that is overdue is a timeout, and may still come back later.
func (c *clients) hear(patience time.Duration) {
	if c.dead {
		return
	}
	b := make([]byte, 256)
	n, err := unix.Read(c.talk, b)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		n = 0
	case err != nil || n == 0:
		if err == nil {
			err = unix.ECONNRESET // the server's end went before the client's
		}
		c.dead = true
		c.came(clientEstablished, time.Now(), err)
		return
	}
	for range n {
		if len(c.words) > 0 {
			failure := error(nil)
			if time.Since(c.words[0]) > patience {
				failure = errNoAnswer
			}
			c.came(clientEstablished, c.words[0], failure)
			c.words = c.words[1:]
		}
	}
	// What is long overdue will not come: the rest of the run is not waited for.
	const hopeless = 20
	for len(c.words) > 0 && time.Since(c.words[0]) > hopeless*patience {
		c.came(clientEstablished, c.words[0], errNoAnswer)
		c.words = c.words[1:]
	}
}

// relative makes times relative to the switch, and checks that all went well before it.
func (c *clients) relative() error {
	zero := float64(c.zero.Load())
	counted := map[string]int{}
	for i := range c.attempts {
		a := &c.attempts[i]
		a.AtMs = round((a.AtMs - zero) / float64(time.Millisecond))
		if a.AtMs >= 0 || a.AtMs > -ms(attemptEvery) {
			continue
		}
		if counted[a.Client]++; a.Outcome != "ok" {
			return fmt.Errorf("control: %.0f ms before the switch an attempt of client %s came to %s", -a.AtMs, a.Client, a.Outcome)
		}
	}
	for _, client := range []string{clientClusterIP, clientNodePort, clientEstablished} {
		if counted[client] == 0 {
			return fmt.Errorf("control: client %s made no attempt before the switch", client)
		}
	}
	slices.SortStableFunc(c.attempts, func(a, b lab.Attempt) int {
		switch {
		case a.AtMs < b.AtMs:
			return -1
		case a.AtMs > b.AtMs:
			return 1
		}
		return 0
	})
	return nil
}

// gapValues add up how long a client was without success: from the beginning of each first attempt that failed to that of the next one
// that did not.
func gapValues(attempts []lab.Attempt) []lab.Value {
	var total, longest float64
	failed, since := 0, -1.0
	last := 0.0
	close := func(at float64) {
		if since >= 0 {
			total += at - since
			longest = max(longest, at-since)
			since = -1
		}
	}
	for _, a := range attempts {
		last = a.AtMs
		if a.Outcome == "ok" {
			close(a.AtMs)
			continue
		}
		failed++
		if since < 0 {
			since = a.AtMs
		}
	}
	close(last)
	return []lab.Value{
		{Value: round(total), Unit: "ms/gap"}, {Value: round(longest), Unit: "ms/longest-gap"},
		{Value: float64(failed), Unit: "attempts-failed"}, {Value: float64(len(attempts)), Unit: "attempts"},
	}
}

// accept takes the one connection that waits, blocking for its user.
func (s *sink) accept(ctx context.Context) (int, error) {
	for ctx.Err() == nil {
		for _, l := range s.listeners {
			fd, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC)
			if err == nil {
				return fd, nil
			}
			if err != unix.EAGAIN && err != unix.EINTR && err != unix.ECONNABORTED {
				return -1, os.NewSyscallError("accept", err)
			}
		}
		nap(tick)
	}
	return -1, fmt.Errorf("no connection has arrived at the endpoints: %w", context.Cause(ctx))
}
