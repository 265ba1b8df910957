package usercluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
)

const (
	namePrefix = "kplab-"
	// runLabel is on every namespace of a run, with the run's own part of its name.
	runLabel = "kplab/run"
	// podSecurityLabel lets the namespace's pods join their node's network, where nothing stricter than Pod Security decides.
	podSecurityLabel = "pod-security.kubernetes.io/enforce"

	removalDeadline = 3 * time.Minute
)

// NewNamespace is the name of a namespace for one run.
func NewNamespace() string { return namePrefix + rand.String(6) }

func (c *Cluster) createNamespace(ctx context.Context, name string) error {
	_, err := c.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{runLabel: strings.TrimPrefix(name, namePrefix), podSecurityLabel: "privileged"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return nil
}

// removeNamespace deletes a namespace and returns when it is gone. The error says how to do it by hand.
func (c *Cluster) removeNamespace(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, removalDeadline, fmt.Errorf("not gone after %s", removalDeadline))
	defer cancel()
	namespaces := c.client.CoreV1().Namespaces()
	err := namespaces.Delete(ctx, name, metav1.DeleteOptions{})
	if err == nil {
		err = poll(ctx, func() (bool, error) {
			_, err := namespaces.Get(ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), err
		})
	}
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("namespace %s of context %s is not removed: %w; kplab clean %s tries again", name, c.Context, err, c.flags())
}

// RemoveLeftovers removes every namespace that runs have left, and returns their names. One of a run that is under way is among them.
func (c *Cluster) RemoveLeftovers(ctx context.Context) (removed []string, err error) {
	list, err := c.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: runLabel})
	if err != nil {
		return nil, fmt.Errorf("namespaces of context %s: %w", c.Context, err)
	}
	var errs []error
	for _, n := range list.Items {
		if !strings.HasPrefix(n.Name, namePrefix) || n.Labels[runLabel] != strings.TrimPrefix(n.Name, namePrefix) {
			continue // somebody else's, who has copied the label
		}
		if err := c.removeNamespace(ctx, n.Name); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, n.Name)
	}
	return removed, errors.Join(errs...)
}

const pollPause = 100 * time.Millisecond

// poll waits until done says so, or ctx ends: the error then is the last of done's and the cause.
func poll(ctx context.Context, done func() (bool, error)) error {
	tick := time.NewTicker(pollPause)
	defer tick.Stop()
	var last error
	for {
		ok, err := done()
		if ok {
			return nil
		}
		var final *finalError
		if errors.As(err, &final) {
			return final.error
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), last)
		}
	}
}

// finalError ends a poll: waiting will not help.
type finalError struct{ error }
