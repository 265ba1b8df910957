// Package probe sends real packets from inside a network namespace and says what a client there would see: TCP, UDP,
// SCTP, ICMP echo, ARP and neighbor discovery, connections and flows that live long, crafted TCP segments; and it
// serves the other end and captures what passes.
//
// What the network does is an [Outcome], a [State] or a [Resolution]. An error means that the lab itself could not
// tell: no socket, no right to open it, a context that ended. Every call ends with its context, and by itself after the
// time it was given; it leaves no goroutine and no file descriptor behind.
//
// Sockets are made by [Netns].Do and belong to that namespace from then on; all else happens outside of it, so that a
// probe that waits does not hold up the namespace's thread. Most probes need CAP_NET_RAW in the namespace.
package probe

// Netns is a network namespace.
type Netns interface {
	// Do runs fn on an OS thread inside the namespace and returns fn's error. Sockets that fn opens stay there.
	Do(fn func() error) error
}
