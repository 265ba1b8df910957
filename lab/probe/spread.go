package probe

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Distribution is how a number of requests fell on the endpoints.
type Distribution struct {
	Endpoints map[string]int // reachable, by endpoint
	Failed    map[string]int // not reachable, by outcome as it prints
	Conns     []*Conn        // those kept open
}

// String is "s1 34, s2 66" by name, then what failed.
func (d Distribution) String() string {
	var parts []string
	for _, counts := range []map[string]int{d.Endpoints, d.Failed} {
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
		}
	}
	return strings.Join(parts, ", ")
}

// Close closes the connections that were kept open.
func (d Distribution) Close() {
	for _, c := range d.Conns {
		c.Close()
	}
}

// Spread makes n requests, one after the other, each from a new source port unless r fixes it, and counts who answered.
// With keep, connections stay open (tcp and sctp), as a least-connection scheduler needs to show; the caller closes them.
func Spread(ctx context.Context, ns Netns, r Request, n int, keep bool) (Distribution, error) {
	d := Distribution{Endpoints: map[string]int{}, Failed: map[string]int{}}
	for range n {
		var o Outcome
		var err error
		if keep {
			var c *Conn
			if c, o, err = Hold(ctx, ns, r); c != nil {
				d.Conns = append(d.Conns, c)
			}
		} else {
			o, err = Dial(ctx, ns, r)
		}
		if err != nil {
			d.Close()
			return Distribution{}, err
		}
		if o.Kind == Reachable && o.Endpoint != "" {
			d.Endpoints[o.Endpoint]++
		} else {
			d.Failed[o.String()]++
		}
	}
	return d, nil
}
