package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"kplab/lab/probe"
)

// Client is the near end. Its methods may be called from any goroutine.
type Client struct {
	where string
	in    io.WriteCloser
	ended chan struct{} // closed when nothing more can be read

	writing sync.Mutex // one line at a time
	lines   *json.Encoder

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan answer
	err     error // why it ended
}

// NewClient speaks to a far end through its standard input and output. where says in errors whose these are. The client reads out until
// that ends, which it must do some time after in is closed.
func NewClient(where string, in io.WriteCloser, out io.Reader) *Client {
	c := &Client{where: where, in: in, ended: make(chan struct{}), lines: json.NewEncoder(in), waiting: map[uint64]chan answer{}}
	go c.read(out) // until out ends; Close waits for it
	return c
}

var errClosed = errors.New("it was closed")

func (c *Client) read(out io.Reader) {
	defer close(c.ended)
	lines := json.NewDecoder(out)
	for {
		var a answer
		err := lines.Decode(&a)
		c.mu.Lock()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("it ended by itself")
			}
			if c.err == nil {
				c.err = err
			}
			c.mu.Unlock()
			return
		}
		if reply := c.waiting[a.ID]; reply != nil {
			reply <- a // has room for it
			delete(c.waiting, a.ID)
		}
		c.mu.Unlock()
	}
}

// Close ends the far end and returns when its output has ended, or with ctx.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.err == nil {
		c.err = errClosed
	}
	c.mu.Unlock()
	err := c.in.Close()
	select {
	case <-c.ended:
	case <-ctx.Done():
		err = errors.Join(err, fmt.Errorf("%s: kplab there goes on: %w", c.where, context.Cause(ctx)))
	}
	return err
}

func (c *Client) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Errorf("%s: no answer from kplab there: %w", c.where, c.err)
}

// ask sends a request and waits for its answer. A far end that could not tell is an error.
func (c *Client) ask(ctx context.Context, r request) (answer, error) {
	reply := make(chan answer, 1)
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return answer{}, c.failure()
	}
	c.last++
	r.ID = c.last
	c.waiting[r.ID] = reply
	c.mu.Unlock()
	if err := c.send(r); err != nil {
		return answer{}, err
	}
	select {
	case a := <-reply:
		if a.Error != "" {
			return answer{}, fmt.Errorf("%s: %s", c.where, a.Error)
		}
		return a, nil
	case <-c.ended:
		return answer{}, c.failure()
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.waiting, r.ID)
		c.mu.Unlock()
		return answer{}, errors.Join(fmt.Errorf("%s: %w", c.where, context.Cause(ctx)), c.send(request{Cancel: r.ID}))
	}
}

func (c *Client) send(r request) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.lines.Encode(r); err != nil {
		return fmt.Errorf("%s: write to kplab there: %w", c.where, err)
	}
	return nil
}

// Dial probes from there: see [probe.Dial].
func (c *Client) Dial(ctx context.Context, r probe.Request) (probe.Outcome, error) {
	a, err := c.ask(ctx, request{Dial: &r})
	if err != nil {
		return probe.Outcome{}, err
	}
	if a.Outcome == nil {
		return probe.Outcome{}, fmt.Errorf("%s: probe %s: the answer has no outcome", c.where, r)
	}
	return *a.Outcome, nil
}

// Serve has a server listen there and answer with the name: see [probe.Serve]. It returns the port. Twice the same is once.
func (c *Client) Serve(ctx context.Context, name, network string, port int) (int, error) {
	a, err := c.ask(ctx, request{Listen: &listener{name, network, port}})
	return a.Port, err
}

// CloseServers closes every server there.
func (c *Client) CloseServers(ctx context.Context) error {
	_, err := c.ask(ctx, request{Close: true})
	return err
}

// Get reads a page over HTTP from a port of 127.0.0.1 there. A status other than 200 is an error.
func (c *Client) Get(ctx context.Context, port int, path string) (string, error) {
	a, err := c.ask(ctx, request{Get: &page{port, path}})
	return a.Text, err
}

// Describe says what it is like there.
func (c *Client) Describe(ctx context.Context) (Place, error) {
	a, err := c.ask(ctx, request{Describe: true})
	if err == nil && a.Place == nil {
		err = fmt.Errorf("%s: the answer describes nothing", c.where)
	}
	if err != nil {
		return Place{}, err
	}
	return *a.Place, nil
}
