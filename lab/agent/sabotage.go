package agent

import (
	"context"
	"errors"
	"fmt"

	"kplab/lab"
	"kplab/lab/sabotage"
)

// breakage is the sabotage of one cell; without one it does nothing.
type breakage struct {
	env  lab.Env       // what the script runs in
	done *sabotage.Env // nil without sabotage
	stop context.CancelCauseFunc
}

// deviated is why the script of a sabotaged cell was ended early: nothing that follows could make the verdict a pass again.
type deviated struct{ lab.Check }

func (d deviated) Error() string {
	s := fmt.Sprintf("%s: %s: expected %s, observed %s", d.Step, d.What, d.Expected, d.Observed)
	if d.Control {
		s = "control deviates: " + s
	}
	return s
}

// sabotaged breaks an env as the job says and returns the context that the script is to run in.
func sabotaged(ctx context.Context, name string, env lab.Env, c lab.Cell, m lab.Machine) (context.Context, *breakage, error) {
	if name == "" {
		return ctx, &breakage{env: env, stop: func(error) {}}, nil
	}
	done, err := sabotage.New(ctx, name, env, c, m)
	if err != nil {
		return nil, nil, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	return ctx, &breakage{env: done, done: done, stop: stop}, nil
}

// notBroken is the verdict of a cell whose env could not be broken.
func notBroken(err error) (lab.Verdict, string) {
	var na *sabotage.NotApplicableError
	if errors.As(err, &na) {
		return lab.Skip, na.Error()
	}
	return lab.Error, err.Error()
}

// end releases the script's context.
func (b *breakage) end() { b.stop(nil) }

// check ends the script of a sabotaged cell at its first deviation.
func (b *breakage) check(k lab.Check) {
	if b.done != nil && !k.OK {
		b.stop(deviated{k})
	}
}

// conclude puts into the result what the sabotage came to. A script that something else has ended, such as its deadline, says
// nothing of it.
func (b *breakage) conclude(ctx context.Context, r *lab.Result) {
	if b.done == nil {
		return
	}
	var d deviated
	switch cause := context.Cause(ctx); {
	case cause == nil:
	case errors.As(cause, &d):
		r.Verdict, r.Reason = lab.Fail, d.Error()
		if d.Control {
			r.Verdict = lab.Error
		}
	default:
		return
	}
	r.Sabotage = b.done.Done()
}

// wantsEvidence reports whether a node's state is worth taking: of a sabotaged cell, only if it survived.
func (b *breakage) wantsEvidence(v lab.Verdict) bool { return b.done == nil || v == lab.Pass }
