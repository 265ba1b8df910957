package results

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"time"

	"kplab/lab"
)

// killed is why the cells of a run that was never closed have no end.
const killed = "kplab was killed"

// replay makes a run of the lines of events.jsonl. A damaged line is left out: what it told is missing, so that at
// worst a cell has no end and becomes an error. Only the first line, which says what the run is, must be whole.
func replay(lines io.Reader) (*recorder, error) {
	in := bufio.NewReaderSize(lines, 1<<16)
	var r *recorder
	var last time.Time
	for {
		line, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		var rec record
		if len(line) > 0 && json.Unmarshal(line, &rec) == nil {
			switch {
			case r != nil:
				r.apply(rec)
				last = rec.At
			case rec.Type == recordRun && rec.Run != nil && rec.Run.Schema >= 1:
				if rec.Run.Schema > Schema {
					return nil, errNewer(rec.Run.Schema)
				}
				r, last = newRecorder(rec), rec.At
			}
		}
		if r == nil {
			return nil, errors.New("does not begin as a kplab run does")
		}
		if err != nil {
			break
		}
	}
	if r.run.Finished.IsZero() {
		r.apply(record{At: last, Event: lab.Event{Type: recordEnd, Message: killed}})
	}
	return r, nil
}
