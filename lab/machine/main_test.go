package machine

import (
	"context"
	"fmt"
	"os"
	"testing"

	"kplab/lab"
)

// TestMain makes this test binary the agent of the machines that tests start.
func TestMain(m *testing.M) {
	if IsAgent() {
		if err := Serve(context.Background(), testHandler); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Args[0] == parentArg {
		parent(os.Args[1])
	}
	os.Exit(m.Run())
}

// testHandler does what each cell's scenario names.
func testHandler(ctx context.Context, job lab.Job, m lab.Machine, emit func(lab.Event)) error {
	for _, c := range job.Cells {
		emit(lab.Event{Type: lab.EventStart, Cell: c.ID()})
		act, ok := acts()[c.Scenario]
		if !ok {
			return fmt.Errorf("no act %q", c.Scenario)
		}
		if err := act(ctx, job, m, func(message string) { emit(lab.Event{Type: lab.EventStep, Cell: c.ID(), Message: message}) }); err != nil {
			return err
		}
		emit(lab.Event{Type: lab.EventEnd, Cell: c.ID(), Result: &lab.Result{Cell: c, Verdict: lab.Pass}})
	}
	return nil
}
