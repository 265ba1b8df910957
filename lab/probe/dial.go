package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Dial probes once: it connects, asks who is there, and ends the connection; over UDP it sends one datagram and over ICMP
// one echo request, and waits for the answer. It returns an error if the lab could not tell, or if ctx ended first.
//
// An ICMP error ends the probe as soon as it comes. A plain TCP client whose own host rejects with ICMP learns of it one
// retransmission (1 s) later, because the error arrives while connect holds the socket; a plain SCTP client never does.
func Dial(ctx context.Context, ns Netns, r Request) (Outcome, error) {
	if there, ok := ns.(Remote); ok {
		return there.Dial(ctx, r)
	}
	switch r.Network {
	case "udp":
		return dialUDP(ctx, ns, r)
	case "icmp":
		return Ping(ctx, ns, r)
	}
	c, o, err := Hold(ctx, ns, r)
	if c != nil {
		c.Close()
	}
	return o, err
}

// errTimeout is the cause with which a probe's context ends when its own time is over.
var errTimeout = errors.New("no answer in time")

// attempt is one probe's way to an outcome: a socket, the ICMP errors about it and a time that ends.
type attempt struct {
	timed   context.Context // ends with errTimeout or the caller's reason
	ctx     context.Context // the same, or ends with an *icmpError
	fail    context.CancelCauseFunc
	release context.CancelFunc
	request Request
	watch   *icmpWatch
	started time.Time // when the kernel was told to connect
}

func begin(ctx context.Context, ns Netns, r Request) (*attempt, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	watch, err := watchICMP(ns, r.Target.Addr())
	if err != nil {
		return nil, fmt.Errorf("probe %s: %w", r, err)
	}
	a := &attempt{request: r, watch: watch}
	a.timed, a.release = context.WithTimeoutCause(ctx, r.Timeout, errTimeout)
	a.ctx, a.fail = context.WithCancelCause(a.timed)
	return a, nil
}

func (a *attempt) end() {
	a.endWatch()
	a.fail(nil)
	a.release()
}

// endWatch stops the watch for ICMP errors after taking in those that have arrived.
func (a *attempt) endWatch() {
	if a.watch != nil {
		a.watch.close()
		a.watch = nil
	}
}

// established leaves ICMP errors out of account from now on, as an established connection does.
func (a *attempt) established() {
	a.endWatch()
	a.ctx = a.timed
}

// connect makes the socket and has it connect, without waiting. A nil file means that the outcome is known.
func (a *attempt) connect(ns Netns) (*os.File, Outcome, error) {
	typ, proto := protocol(a.request.Network)
	fd, err := open(ns, domain(a.request.Target.Addr()), typ, proto)
	if err != nil {
		return nil, Outcome{}, fmt.Errorf("probe %s: %w", a.request, err)
	}
	if err = a.prepare(fd); err == nil {
		a.started = time.Now()
		if err = unix.Connect(fd, sockaddr(a.request.Target)); err == unix.EINPROGRESS {
			err = nil
		}
		err = os.NewSyscallError("connect", err)
	}
	if err != nil {
		unix.Close(fd)
		o, err := a.outcome(err)
		return nil, o, err
	}
	local, err := localAddr(fd)
	if err != nil {
		unix.Close(fd)
		return nil, Outcome{}, fmt.Errorf("probe %s: %w", a.request, err)
	}
	a.watch.start(proto, local, a.request.Target, func(e *icmpError) { a.fail(e) })
	return os.NewFile(uintptr(fd), a.request.Network), Outcome{}, nil
}

// receiveBuffer keeps the window that a client offers below 256 KiB (the kernel doubles the figure and then does not
// grow it), so that [Inject] knows what is older than any window.
const receiveBuffer = 128 << 10

func (a *attempt) prepare(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer); err != nil {
		return os.NewSyscallError("setsockopt SO_RCVBUF", err)
	}
	return bindSource(fd, a.request)
}

// outcome turns what ended the attempt into an outcome: an ICMP error if there was one, else the end of its time, else
// the errno of the socket.
func (a *attempt) outcome(err error) (Outcome, error) {
	a.endWatch() // the ICMP error came before the errno that it caused
	cause := context.Cause(a.ctx)
	var icmp *icmpError
	switch {
	case errors.As(cause, &icmp):
		return icmp.outcome(), nil
	case errors.Is(err, os.ErrDeadlineExceeded) && cause == errTimeout:
		return Outcome{Kind: Timeout}, nil
	case errors.Is(err, os.ErrDeadlineExceeded) && cause != nil:
		return Outcome{}, fmt.Errorf("probe %s: %w", a.request, cause)
	case errors.Is(err, unix.ECONNREFUSED):
		return Outcome{Kind: Refused, Detail: refusal[a.request.Network]}, nil
	}
	if o, ok := errnoOutcome(err); ok {
		return o, nil
	}
	return Outcome{}, fmt.Errorf("probe %s: %w", a.request, err)
}

// refusal is what ECONNREFUSED means in a network where no ICMP error explains it.
var refusal = map[string]string{"tcp": "rst", "sctp": "abort", "udp": "ECONNREFUSED"}
