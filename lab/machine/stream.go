package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"kplab/lab"
)

// eventAlive is what an agent sends every aliveEvery while it lives. Runners swallow it.
const eventAlive lab.EventType = "alive"

const aliveEvery = time.Second

// sender writes events as JSON lines; it may be used from many goroutines.
type sender struct {
	mu  sync.Mutex
	enc *json.Encoder
	err error // the first write that failed; later events are dropped
}

func newSender(w io.Writer) *sender { return &sender{enc: json.NewEncoder(w)} }

// send writes one event and stamps it if it has no time yet.
func (s *sender) send(e lab.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	if e.Time.IsZero() {
		e.Time = time.Now().UTC()
	}
	s.err = s.enc.Encode(e)
}

func (s *sender) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// receive decodes events until the stream ends and passes them on in order. A stream cut in the middle of an event is not an
// error: the machine's end says why.
func receive(r io.Reader, on func(lab.Event)) error {
	dec := json.NewDecoder(r)
	for {
		var e lab.Event
		err := dec.Decode(&e)
		switch {
		case err == nil:
			on(e)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		default:
			return fmt.Errorf("read the machine's events: %w", err)
		}
	}
}

// serialise makes emit safe for several goroutines of one runner.
func serialise(emit func(lab.Event)) func(lab.Event) {
	var mu sync.Mutex
	return func(e lab.Event) {
		mu.Lock()
		defer mu.Unlock()
		emit(e)
	}
}

// logEvent is an event in which the runner itself says something.
func logEvent(format string, args ...any) lab.Event {
	return lab.Event{Type: lab.EventLog, Time: time.Now().UTC(), Message: fmt.Sprintf(format, args...)}
}
