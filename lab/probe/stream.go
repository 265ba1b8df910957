package probe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Hold opens a TCP or SCTP connection, asks who is there, and keeps the connection. The Conn is nil unless the outcome
// is reachable; the caller closes it. r.Timeout bounds the connect and the answer, and later each standstill of an exchange.
func Hold(ctx context.Context, ns Netns, r Request) (*Conn, Outcome, error) {
	if r.Network != "tcp" && r.Network != "sctp" {
		return nil, Outcome{}, fmt.Errorf("probe %s: only tcp and sctp have connections to hold", r)
	}
	a, err := begin(ctx, ns, r)
	if err != nil {
		return nil, Outcome{}, err
	}
	defer a.end()
	nc, o, err := a.dial(ns)
	if nc == nil {
		return nil, o, err
	}
	return a.ask(nc, o.RTT)
}

// dial connects. A nil connection means that the outcome is known; else only its RTT is set.
func (a *attempt) dial(ns Netns) (net.Conn, Outcome, error) {
	f, o, err := a.connect(ns)
	if f == nil {
		return nil, o, err
	}
	release := interruptOn(a.ctx, f)
	err = waitConnected(f)
	rtt := time.Since(a.started)
	release()
	if err != nil {
		f.Close()
		o, err := a.outcome(err)
		return nil, o, err
	}
	c, err := netConn(f)
	if err != nil {
		return nil, Outcome{}, fmt.Errorf("probe %s: %w", a.request, err)
	}
	a.established()
	return c, Outcome{RTT: rtt}, nil
}

// ask asks a new connection who is there.
func (a *attempt) ask(nc net.Conn, rtt time.Duration) (*Conn, Outcome, error) {
	c := &Conn{conn: nc.(*net.TCPConn), request: a.request, state: Alive}
	release := interruptOn(a.ctx, nc)
	in := bufio.NewReader(nc) // the server sends nothing unasked: nothing is left in it after the line
	_, err := io.WriteString(nc, whoRequest+"\n")
	var line []byte
	if err == nil {
		line, err = in.ReadSlice('\n')
	}
	release()
	if err == nil || len(line) > 0 {
		o, who := reachable(line)
		o.RTT = rtt
		c.who = who
		return c, o, nil
	}
	c.Close()
	if isEOF(err) {
		return nil, Outcome{Kind: Reset, Detail: "closed without an answer"}, nil
	}
	o, err := a.outcome(err)
	if o.Kind == Timeout {
		o.Detail = "connected, no answer"
	}
	return nil, o, err
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// waitConnected returns when a connecting socket is connected, has failed or its deadline is over.
func waitConnected(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failure error
	err = raw.Write(func(fd uintptr) (done bool) {
		errno, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err != nil {
			failure = os.NewSyscallError("getsockopt SO_ERROR", err)
			return true
		}
		if errno != 0 {
			failure = os.NewSyscallError("connect", unix.Errno(errno))
			return true
		}
		_, err = unix.Getpeername(int(fd))
		return err == nil // else a spurious wake-up
	})
	if failure != nil {
		return failure
	}
	return err
}
