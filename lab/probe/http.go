package probe

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// HTTPAnswer is what an HTTP server answered.
type HTTPAnswer struct {
	Status int    // 200, 503, ...; 0 if nothing answered
	Body   string // its first 64 KiB
}

// HTTP connects over TCP and asks for a path with GET. The outcome is that of [Dial], except that whoever answers in HTTP
// is reachable, whatever the status; the answer is then set.
func HTTP(ctx context.Context, ns Netns, r Request, path string) (Outcome, HTTPAnswer, error) {
	if r.Network != "tcp" {
		return Outcome{}, HTTPAnswer{}, fmt.Errorf("get %s over %s: HTTP needs tcp", path, r.Network)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.Target.String()+path, nil)
	if err != nil {
		return Outcome{}, HTTPAnswer{}, fmt.Errorf("get %s: %w", path, err)
	}
	request.Close = true
	a, err := begin(ctx, ns, r)
	if err != nil {
		return Outcome{}, HTTPAnswer{}, err
	}
	defer a.end()
	nc, o, err := a.dial(ns)
	if nc == nil {
		return o, HTTPAnswer{}, err
	}
	defer nc.Close()
	rtt := o.RTT

	release := interruptOn(a.ctx, nc)
	var response *http.Response
	var body []byte
	if err = request.Write(nc); err == nil {
		if response, err = http.ReadResponse(bufio.NewReader(nc), request); err == nil {
			const most = 64 << 10
			body, err = io.ReadAll(io.LimitReader(response.Body, most))
			response.Body.Close()
		}
	}
	release()
	if err == nil {
		return Outcome{Kind: Reachable, Detail: response.Status, RTT: rtt}, HTTPAnswer{Status: response.StatusCode, Body: strings.TrimSpace(string(body))}, nil
	}
	if isEOF(err) {
		return Outcome{Kind: Reset, Detail: "closed without an answer"}, HTTPAnswer{}, nil
	}
	o, err = a.outcome(err)
	if o.Kind == Timeout {
		o.Detail = "connected, no answer"
	}
	return o, HTTPAnswer{}, err
}
