package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"kplab/lab/probe"
)

const (
	getDeadline = 10 * time.Second
	// maxPage is more than the metrics of a kube-proxy that has seen some ten thousand Services.
	maxPage = 16 << 20
)

// Answer is the far end: it does what the lines of in ask for and writes the answers to out, until in ends. ctx bounds what is
// asked for. What it has opened is closed when it returns.
func Answer(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	a := &answerer{out: json.NewEncoder(out), running: map[uint64]context.CancelFunc{}, servers: map[listener]*probe.Server{}}
	defer a.closeServers()
	defer a.work.Wait()
	defer cancel()
	lines := json.NewDecoder(in)
	for {
		var r request
		err := lines.Decode(&r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		a.take(ctx, r)
	}
}

type answerer struct {
	work sync.WaitGroup

	mu      sync.Mutex
	out     *json.Encoder
	running map[uint64]context.CancelFunc
	servers map[listener]*probe.Server
}

// take starts what a request asks for.
func (a *answerer) take(ctx context.Context, r request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Cancel != 0 {
		if stop := a.running[r.Cancel]; stop != nil {
			stop()
		}
		return
	}
	ctx, stop := context.WithCancel(ctx)
	a.running[r.ID] = stop
	a.work.Go(func() {
		defer stop()
		reply := answer{ID: r.ID}
		if err := a.do(ctx, r, &reply); err != nil {
			reply = answer{ID: r.ID, Error: err.Error()}
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.running, r.ID)
		// A near end that does not read any more closes the input as well.
		_ = a.out.Encode(reply)
	})
}

func (a *answerer) do(ctx context.Context, r request, reply *answer) (err error) {
	switch {
	case r.Dial != nil:
		var o probe.Outcome
		o, err = probe.Dial(ctx, probe.Here{}, *r.Dial)
		reply.Outcome = &o
	case r.Listen != nil:
		reply.Port, err = a.listen(*r.Listen)
	case r.Close:
		err = a.closeServers()
	case r.Get != nil:
		reply.Text, err = get(ctx, *r.Get)
	case r.Describe:
		reply.Place, err = Describe()
	default:
		err = errors.New("the request asks for nothing that this kplab knows")
	}
	return err
}

func (a *answerer) listen(l listener) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if have := a.servers[l]; have != nil {
		return have.Port(), nil
	}
	s, err := probe.Serve(probe.Here{}, l.Name, l.Network, l.Port)
	if err != nil {
		return 0, err
	}
	l.Port = s.Port()
	a.servers[l] = s
	return s.Port(), nil
}

func (a *answerer) closeServers() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, s := range a.servers {
		errs = append(errs, s.Close())
	}
	clear(a.servers)
	return errors.Join(errs...)
}

func get(ctx context.Context, p page) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, getDeadline)
	defer cancel()
	if !strings.HasPrefix(p.Path, "/") {
		return "", fmt.Errorf("path %q: expected one that begins with /", p.Path)
	}
	url := fmt.Sprintf("http://127.0.0.1:%d%s", p.Port, p.Path)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: HTTP status %s: %.200q", url, resp.Status, body)
	}
	return string(body), err
}

// Describe says what the place is like that this process is in.
func Describe() (*Place, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("addresses of the interfaces: %w", err)
	}
	p := &Place{}
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && !slices.Contains(p.Addresses, prefix.Addr()) {
			p.Addresses = append(p.Addresses, prefix.Addr())
		}
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	if err != nil {
		p.RawSockets = os.NewSyscallError("raw socket", err).Error()
		return p, nil
	}
	return p, unix.Close(fd)
}
