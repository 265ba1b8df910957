package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
)

// How a watch looks. Its thread wakes every tick, reads the nf_tables generation and sends an attempt when that has changed, or when
// the last one is long enough ago. Thus the moment of a change is known to a tick, and few packets are sent: at 30,000 Services in
// iptables mode, 2,000 attempts a second would take half a core from kube-proxy.
const (
	tick        = 200 * time.Microsecond // on the reference machine
	longestTick = time.Millisecond       // on any
	sparse      = 25 * time.Millisecond  // between attempts while the generation stays as it is
	dense       = 500 * time.Microsecond // between attempts where no generation tells; later a hundredth of what has passed
	answerTime  = 5 * time.Millisecond   // on the reference machine; after it an attempt counts as not answered
	burst       = 10                     // attempts after a change of the generation
	landingTry  = 40                     // likewise, where which endpoint is chosen is chance
	confirmGone = 3                      // attempts in a row that must fail
)

// goal is the state of the data plane that a watch waits for.
type goal struct {
	// reach are targets of which each must have answered, one after the other.
	reach []netip.AddrPort
	// gone is a target that must have ceased to answer.
	gone netip.AddrPort
	// landing is a target of which a connection must have arrived at an endpoint.
	landing netip.AddrPort
	at      netip.AddrPort
}

// seen is what a watch saw.
type seen struct {
	when     time.Time // the data plane was as it should be, to a tick (or, without a generation, the attempts' interval)
	attempts int
}

// watch waits until the data plane is as the goal says, while act, which begins once the watch looks, brings that about. If
// generations is set, the mode's rules are in nf_tables. An error of act ends the watch.
func (s *site) watch(ctx context.Context, g goal, generations bool, act func() error) (seen, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := watcher{site: s, goal: g, generations: generations, looking: make(chan struct{})}
	result := make(chan error, 1)
	go func() { // ends with ctx at the latest
		result <- s.client.Do(func() error { return w.run(ctx) })
	}()
	select {
	case <-w.looking:
	case err := <-result:
		return seen{}, err
	}
	if err := act(); err != nil {
		cancel(err)
		<-result
		return seen{}, err
	}
	if err := <-result; err != nil {
		return w.seen, err
	}
	return w.seen, s.forget()
}

// forget empties the node's connection tracking table. An attempt that was sent before its Service was programmed stays there as it was,
// untranslated, for two minutes, and a later connection from the same port would follow it into nowhere.
func (s *site) forget() error {
	err := s.node.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
	if err != nil {
		return fmt.Errorf("%s: empty the connection tracking table: %w", s.node.Name(), err)
	}
	return nil
}

type watcher struct {
	site        *site
	goal        goal
	generations bool
	looking     chan struct{} // closed with the first attempt
	seen        seen

	flying   []attempt
	changes  []time.Time // of the generation
	last     uint32      // generation
	opposite time.Time   // beginning of the last attempt that showed the old state
	failures int         // in a row
	soon     bool        // the next attempt is due at once
}

func (w *watcher) run(ctx context.Context) (err error) {
	defer func() {
		for _, a := range w.flying {
			a.end()
		}
		w.site.sink.drain()
	}()
	if w.generations {
		if w.last, err = w.site.clock.now(); err != nil {
			return err
		}
	}
	began := time.Now()
	pause := min(w.site.deadlines.Of(tick), longestTick) // an emulated machine would do nothing else
	var next time.Time
	left := 0
	for first := true; ; first = false {
		now := time.Now()
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s after %s and %d attempts: %w", w.goal, now.Sub(began).Round(time.Millisecond), w.seen.attempts, context.Cause(ctx))
		}
		if w.generations {
			g, err := w.site.clock.now()
			if err != nil {
				return err
			}
			if g != w.last {
				w.last = g
				w.changes = append(w.changes, time.Now())
				if left = burst; w.goal.landing.IsValid() {
					left = landingTry
				}
			}
		}
		if left > 0 || w.soon || !now.Before(next) {
			w.soon = false
			a, err := begin(w.target())
			if err != nil {
				return err
			}
			w.flying = append(w.flying, a)
			w.seen.attempts++
			left = max(left-1, 0)
			wait := sparse
			if !w.generations {
				wait = min(max(w.site.deadlines.Of(dense), now.Sub(began)/100), sparse)
			}
			next = now.Add(wait)
		}
		if first {
			close(w.looking)
		}
		if w.land() {
			return nil
		}
		nap(pause)
	}
}

// target is what the next attempt goes to.
func (w *watcher) target() netip.AddrPort {
	switch {
	case w.goal.gone.IsValid():
		return w.goal.gone
	case w.goal.landing.IsValid():
		return w.goal.landing
	}
	return w.goal.reach[0]
}

// land takes in what has become of attempts, and reports whether the goal is reached.
func (w *watcher) land() bool {
	patience := w.site.deadlines.Of(answerTime)
	for len(w.flying) > 0 {
		// In the order of their beginnings, except that one which was answered shows that those before it were not.
		i := slices.IndexFunc(w.flying, func(a attempt) bool { pending, _ := a.state(); return !pending })
		if i < 0 {
			if time.Since(w.flying[0].began) < patience {
				return false
			}
			a := w.flying[0]
			w.flying = w.flying[1:]
			a.end()
			if w.outcome(a.began, errNoAnswer) {
				return true
			}
			continue
		}
		a := w.flying[i]
		_, failure := a.state()
		if i > 0 {
			w.opposite = later(w.opposite, w.flying[i-1].began, w.goal.gone.IsValid())
		}
		for _, old := range w.flying[:i+1] {
			old.end()
		}
		w.flying = w.flying[i+1:]
		if w.outcome(a.began, failure) {
			return true
		}
	}
	return false
}

// later is the later of two times, or the first one where an unanswered attempt is not the old state.
func later(a, b time.Time, ignore bool) time.Time {
	if ignore || b.Before(a) {
		return a
	}
	return b
}

// outcome takes in one attempt, and reports whether the goal is reached with it.
func (w *watcher) outcome(began time.Time, failure error) bool {
	switch {
	case w.goal.gone.IsValid():
		if failure == nil {
			w.opposite, w.failures = began, 0
			w.site.sink.drain()
			return false
		}
		if w.failures++; w.failures == 1 {
			w.seen.when = w.changeBefore(began)
		}
		return w.failures >= confirmGone
	case w.goal.landing.IsValid():
		if failure != nil {
			return false
		}
		// A change is followed by so many attempts that one of them lands: it was the latest.
		if slices.Contains(w.site.sink.drain(), w.goal.at) {
			w.seen.when = began
			for _, c := range slices.Backward(w.changes) {
				if !c.After(began) {
					w.seen.when = c
					break
				}
			}
			return true
		}
		return false
	}
	if failure != nil {
		w.opposite = began
		return false
	}
	if !w.opposite.IsZero() {
		w.seen.when = w.changeBefore(began)
		w.opposite = time.Time{}
	}
	w.site.sink.drain()
	// One by one: what is left did not serve before this one, or its own first attempt will say so.
	if w.goal.reach = w.goal.reach[1:]; len(w.goal.reach) > 0 {
		for _, a := range w.flying {
			a.end()
		}
		w.flying, w.soon = nil, true
	}
	return len(w.goal.reach) == 0
}

// changeBefore is when the data plane changed, if an attempt showed the new state first: with the generation's change since the last
// attempt that showed the old one, or with that attempt.
func (w *watcher) changeBefore(began time.Time) time.Time {
	for _, c := range w.changes {
		if c.After(w.opposite) && !c.After(began) {
			return c
		}
	}
	return began
}

// visible reports whether a client can see the goal.
func (g goal) visible() bool { return len(g.reach) > 0 || g.gone.IsValid() || g.landing.IsValid() }

func (g goal) String() string {
	switch {
	case g.gone.IsValid():
		return fmt.Sprintf("%s still answers", g.gone)
	case g.landing.IsValid():
		return fmt.Sprintf("no connection to %s has arrived at %s", g.landing, g.at)
	}
	return fmt.Sprintf("%s does not answer", g.reach[0])
}

// serves checks that connections to a Service are taken by its endpoints.
func (s *site) serves(ctx context.Context, svc *service) error {
	const tries = 3
	target := svc.clusterIP()
	endpoints := svc.endpoints()
	return s.client.Do(func() error {
		for range tries {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			s.sink.drain()
			_, arrived, err := s.try(target, s.deadlines.Of(time.Second))
			if err != nil {
				return fmt.Errorf("%s does not serve Service %s: %w", target, svc.name(), err)
			}
			for range 100 { // the client is connected a moment before the server
				if len(arrived) > 0 {
					break
				}
				nap(tick)
				arrived = s.sink.drain()
			}
			if len(arrived) != 1 || !endpoints[arrived[0]] {
				return fmt.Errorf("a connection to Service %s at %s arrived at %v, which is not one of its %d endpoints", svc.name(), target, arrived, len(endpoints))
			}
		}
		return nil
	})
}

// silent checks that nothing answers at a Service's address: before kube-proxy has run, an answer would come from elsewhere.
func (s *site) silent(ctx context.Context, svc *service) error {
	err := s.client.Do(func() error {
		_, _, err := s.try(svc.clusterIP(), s.deadlines.Of(50*time.Millisecond))
		return err
	})
	if err == nil {
		return fmt.Errorf("control: %s answers though no kube-proxy has run", svc.clusterIP())
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !errors.Is(err, errNoAnswer) && outcome(err) == "unreachable" {
		return fmt.Errorf("control: connect to %s: %w", svc.clusterIP(), err)
	}
	return nil
}
