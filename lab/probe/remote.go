package probe

import "context"

// Remote is a namespace that this process cannot enter, on another machine: it takes whole requests, and Do is an error. What needs
// sockets in this process (connections that are held, crafted segments, ARP) is not to be had there.
type Remote interface {
	Netns
	// Dial does what the function Dial would do there, "icmp" included.
	Dial(ctx context.Context, r Request) (Outcome, error)
}

// Here is the namespace that this process is in.
type Here struct{}

// Do implements Netns.
func (Here) Do(fn func() error) error { return fn() }
