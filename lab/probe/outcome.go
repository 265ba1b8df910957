package probe

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Kind is what a probe came to.
type Kind string

const (
	Reachable   Kind = "reachable"   // an endpoint answered
	Refused     Kind = "refused"     // the first packet met a TCP RST (SCTP: ABORT) or an ICMP port unreachable
	Reset       Kind = "reset"       // the connection was established and then ended before the answer came
	Unreachable Kind = "unreachable" // another ICMP error, or the local kernel would not send
	Timeout     Kind = "timeout"     // nothing came
)

// Request says what to probe.
type Request struct {
	Network string         // "tcp", "udp", "sctp" or "icmp"
	Target  netip.AddrPort // IPv4 or IPv6, without zone; "icmp" does not use the port
	// Source is the local address; its port, its address or both may be zero, and are then the kernel's choice.
	Source netip.AddrPort
	// Timeout is how long the probe waits for an answer. For a connection that is held it is also how long each later
	// exchange may stand still. It must be set.
	Timeout time.Duration
	// Abort ends a TCP connection with a RST instead of a FIN, which leaves no TIME_WAIT: Source can be used again at once.
	Abort bool
}

func (r Request) String() string {
	s := r.Network + " " + r.Target.String()
	if r.Source.IsValid() {
		s += " from " + r.Source.String()
	}
	return s
}

func (r Request) validate() error {
	switch {
	case !slices.Contains([]string{"tcp", "udp", "sctp", "icmp"}, r.Network):
		return fmt.Errorf("probe %s: unknown network %q: known are tcp, udp, sctp, icmp", r, r.Network)
	case !r.Target.IsValid() || r.Target.Addr().Zone() != "":
		return fmt.Errorf("probe %s: the target must be an address without zone, and a port", r)
	case r.Source.Addr().IsValid() && r.Source.Addr().Unmap().Is4() != r.Target.Addr().Unmap().Is4():
		return fmt.Errorf("probe %s: source and target are of different IP families", r)
	case r.Timeout <= 0:
		return fmt.Errorf("probe %s: Timeout is not set", r)
	}
	return nil
}

// Outcome is what a client saw.
type Outcome struct {
	Kind     Kind
	Endpoint string         // name of the server that answered, if it was a [Server]
	Source   netip.AddrPort // the client, as that server saw it
	// ICMP names the ICMP error as nft does in a reject statement: "port-unreachable", "admin-prohibited", "addr-unreachable", ...
	ICMP string
	// Detail is what else is known: "rst", the name of a local errno ("EPERM"), "connected, no answer". Where ICMP is
	// set, it says who sent the error.
	Detail string
	// RTT is the time to connect (TCP: from SYN to SYN-ACK, SCTP: the four-way handshake), or for UDP and ICMP echo the
	// time until the answer. Zero unless reachable.
	RTT time.Duration
}

// String is the outcome as a matrix prints it: "reachable (s1, seen from 10.244.1.20)", "refused (rst)",
// "refused (icmp port-unreachable)", "unreachable (EPERM)", "timeout".
func (o Outcome) String() string {
	switch {
	case o.Kind == Reachable && o.Endpoint != "":
		return fmt.Sprintf("%s (%s, seen from %s)", o.Kind, o.Endpoint, o.Source.Addr())
	case o.ICMP != "":
		return fmt.Sprintf("%s (icmp %s)", o.Kind, o.ICMP)
	case o.Detail != "":
		return fmt.Sprintf("%s (%s)", o.Kind, o.Detail)
	}
	return string(o.Kind)
}
