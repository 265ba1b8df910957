package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// State is how a connection that is held stands.
type State string

const (
	Alive    State = "alive"   // it carries data, or has given no sign of the contrary
	WasReset State = "reset"   // the peer, or somebody in its name, sent a RST
	Closed   State = "closed"  // the peer ended it, or this side did
	Stalled  State = "timeout" // an exchange stood still for the request's Timeout; it may come back
)

// Conn is a connection that is held open. Its methods may be called from any goroutine; exchanges take turns.
type Conn struct {
	conn    *net.TCPConn // of SCTP too: package net knows no other stream
	request Request
	who     answer

	mu     sync.Mutex
	state  State
	unsent []byte // of an exchange that stood still
	stale  int64  // bytes still to come of such an exchange
}

// Endpoint is the name of the server at the other end.
func (c *Conn) Endpoint() string { return c.who.Endpoint }

// Local is the client's address as the client sees it.
func (c *Conn) Local() netip.AddrPort { return addrPortOf(c.conn.LocalAddr()) }

// Source is the client's address as the server sees it.
func (c *Conn) Source() netip.AddrPort { return c.who.Source }

// Address is the server's address as the server sees it, behind all DNAT.
func (c *Conn) Address() netip.AddrPort { return c.who.Address }

// Close ends the connection: with a FIN, or a RST if the request says Abort.
func (c *Conn) Close() error {
	if c.request.Abort {
		c.conn.SetLinger(0)
	}
	return c.conn.Close()
}

// Exchange proves that the connection is alive: it sends n bytes, which the server must send back.
func (c *Conn) Exchange(ctx context.Context, n int) (State, error) {
	payload := make([]byte, n)
	for i := range payload {
		payload[i] = byte(i*7 + i>>8)
	}
	echoed := bytes.NewBuffer(make([]byte, 0, n))
	state, err := c.do(ctx, append(fmt.Appendf(nil, "%s %d\n", echoRequest, n), payload...), int64(n), echoed)
	if err == nil && state == Alive && !bytes.Equal(payload, echoed.Bytes()) {
		return state, fmt.Errorf("exchange with %s over %s: %d bytes came back changed", c.Endpoint(), c.request, n)
	}
	return state, err
}

// Bulk has the server send n bytes.
func (c *Conn) Bulk(ctx context.Context, n int64) (State, error) {
	return c.do(ctx, fmt.Appendf(nil, "%s %d\n", sendRequest, n), n, io.Discard)
}

// Drip has the server send n single bytes, one every interval, which is shorter than the request's Timeout.
func (c *Conn) Drip(ctx context.Context, n int64, interval time.Duration) (State, error) {
	return c.do(ctx, fmt.Appendf(nil, "%s %d %v\n", dripRequest, n, interval), n, io.Discard)
}

// State says how the connection stands, as far as that shows without sending anything.
func (c *Conn) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == WasReset || c.state == Closed {
		return c.state
	}
	raw, err := c.conn.SyscallConn()
	if err != nil {
		c.state = Closed
		return c.state
	}
	var n int
	var peekErr error
	err = raw.Control(func(fd uintptr) {
		n, _, peekErr = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	})
	switch {
	case err != nil, peekErr == nil && n == 0: // closed here, closed there
		c.state = Closed
	case peekErr != nil && peekErr != unix.EAGAIN:
		c.state, _ = stateOf(peekErr)
	}
	return c.state
}

// do sends request and reads size bytes of answer into w. What an earlier exchange that stood still has left goes first.
func (c *Conn) do(ctx context.Context, request []byte, size int64, w io.Writer) (State, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == WasReset || c.state == Closed {
		return c.state, nil
	}
	if c.who.Endpoint == "" {
		return c.state, fmt.Errorf("exchange over %s: the other end is not a probe server", c.request)
	}
	both, stop := context.WithCancel(ctx)
	defer stop()
	release := interruptOn(both, c.conn)
	defer release()
	p := patience{ctx: both, conn: c.conn, timeout: c.request.Timeout}

	c.unsent = append(c.unsent, request...)
	written := make(chan error, 1)
	go func() {
		for len(c.unsent) > 0 {
			n, err := p.write(c.unsent)
			c.unsent = c.unsent[n:]
			if err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	c.stale += size
	readErr := c.read(p, size, w)
	if readErr != nil {
		stop()
	}
	writeErr := <-written
	if readErr == nil {
		c.state = Alive
		return c.state, nil
	}
	if ctx.Err() != nil {
		c.state = Stalled
		return c.state, fmt.Errorf("exchange with %s over %s: %w", c.Endpoint(), c.request, context.Cause(ctx))
	}
	var known bool
	if c.state, known = stateOf(readErr); !known {
		return c.state, fmt.Errorf("exchange with %s over %s: %w", c.Endpoint(), c.request, readErr)
	}
	// The kernel reports a RST once, to whichever call comes first.
	if s, _ := stateOf(writeErr); c.state == Closed && s == WasReset {
		c.state = WasReset
	}
	return c.state, nil
}

// read reads what is still to come: the last size bytes of it go to w.
func (c *Conn) read(p patience, size int64, w io.Writer) error {
	buf := make([]byte, 64<<10)
	for c.stale > 0 {
		want, to := min(c.stale, int64(len(buf))), w
		if old := c.stale - size; old > 0 {
			want, to = min(old, int64(len(buf))), io.Discard
		}
		n, err := p.read(buf[:want])
		to.Write(buf[:n]) // memory or nowhere
		c.stale -= int64(n)
		if err != nil {
			return err
		}
	}
	return nil
}

// stateOf is what a failed read or write says about a connection.
func stateOf(err error) (s State, known bool) {
	switch {
	case errors.Is(err, unix.ECONNRESET):
		return WasReset, true
	case errors.Is(err, io.EOF), errors.Is(err, unix.EPIPE), errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrClosed):
		return Closed, true
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.ETIMEDOUT), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		return Stalled, true
	}
	return Stalled, false
}

// patience reads and writes with a deadline that starts anew with each step.
type patience struct {
	ctx     context.Context // whoever ends it also ends the step that waits, see interruptOn
	conn    net.Conn
	timeout time.Duration
}

func (p patience) read(b []byte) (int, error) {
	p.conn.SetReadDeadline(time.Now().Add(p.timeout))
	if p.ctx.Err() != nil {
		return 0, os.ErrDeadlineExceeded
	}
	return p.conn.Read(b)
}

func (p patience) write(b []byte) (int, error) {
	const step = 64 << 10
	p.conn.SetWriteDeadline(time.Now().Add(p.timeout))
	if p.ctx.Err() != nil {
		return 0, os.ErrDeadlineExceeded
	}
	return p.conn.Write(b[:min(len(b), step)])
}
