package probe

import (
	"errors"

	"golang.org/x/sys/unix"
)

// errnoOutcome is what an errno means to a client where no ICMP error explains it; ok is false for an errno that the
// network does not cause.
func errnoOutcome(err error) (o Outcome, ok bool) {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return Outcome{}, false
	}
	switch errno {
	case unix.ECONNRESET, unix.EPIPE:
		return Outcome{Kind: Reset}, true
	case unix.ETIMEDOUT:
		return Outcome{Kind: Timeout}, true
	case unix.EPERM, // dropped in OUTPUT
		unix.EACCES, // a prohibit route
		unix.EINVAL, // a blackhole route
		unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EADDRNOTAVAIL, unix.ENETDOWN, unix.EHOSTDOWN, unix.ENONET, unix.ENOPROTOOPT, unix.EPROTO:
		return Outcome{Kind: Unreachable, Detail: unix.ErrnoName(errno)}, true
	}
	return Outcome{}, false
}
