package probe

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"
)

// requestID tells one UDP request from another.
var requestID atomic.Uint64

// dialUDP sends one datagram and waits for its answer.
func dialUDP(ctx context.Context, ns Netns, r Request) (Outcome, error) {
	a, err := begin(ctx, ns, r)
	if err != nil {
		return Outcome{}, err
	}
	defer a.end()
	f, o, err := a.connect(ns)
	if f == nil {
		return o, err
	}
	c, err := netConn(f)
	if err != nil {
		return Outcome{}, fmt.Errorf("probe %s: %w", r, err)
	}
	defer c.Close()
	release := interruptOn(a.ctx, c)
	defer release()
	id := strconv.FormatUint(requestID.Add(1), 10)
	sent := time.Now()
	line, err := exchangeDatagram(c, whoRequest, id)
	if err != nil {
		return a.outcome(err)
	}
	o, _ = reachable(line)
	o.RTT = time.Since(sent)
	return o, nil
}

// exchangeDatagram sends one request of a kind and returns its answer.
func exchangeDatagram(c net.Conn, kind, id string) ([]byte, error) {
	if _, err := c.Write([]byte(kind + " " + id)); err != nil {
		return nil, err
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return nil, err
		}
		if _, who := reachable(buf[:n]); who.Endpoint == "" || who.ID == id {
			return buf[:n], nil
		}
	}
}
