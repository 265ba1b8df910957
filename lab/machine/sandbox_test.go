package machine

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
)

// do runs acts in a machine and returns its events.
func do(t *testing.T, r lab.Runner, job lab.Job, names ...string) ([]lab.Event, error) {
	t.Helper()
	for _, n := range names {
		job.Cells = append(job.Cells, lab.Cell{Scenario: n, Mode: lab.NFTables})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var events []lab.Event
	err := r.Run(ctx, job, func(e lab.Event) { events = append(events, e) })
	return events, err
}

// said returns the messages of a type.
func said(events []lab.Event, typ lab.EventType) []string {
	var s []string
	for _, e := range events {
		if e.Type == typ {
			s = append(s, e.Message)
		}
	}
	return s
}

func types(events []lab.Event) []lab.EventType {
	var s []lab.EventType
	for _, e := range events {
		s = append(s, e.Type)
	}
	return s
}

// sandboxes are the ways to run one that this user has.
func sandboxes(t *testing.T) map[string]*Sandbox {
	t.Helper()
	all := map[string]*Sandbox{"user namespace": {Unprivileged: true}}
	if os.Geteuid() == 0 {
		all["root"] = &Sandbox{}
	}
	return all
}

func TestSandboxRunsJob(t *testing.T) {
	for name, s := range sandboxes(t) {
		t.Run(name, func(t *testing.T) {
			events, err := do(t, s, lab.Job{}, "look")
			require.NoError(t, err)
			require.NotEmpty(t, events)
			assert.Equal(t, lab.EventReady, events[0].Type)
			assert.Equal(t, lab.EventDone, events[len(events)-1].Type)
			m := events[0].Machine
			require.NotNil(t, m)
			assert.Equal(t, release(), m.Release)
			assert.Equal(t, AcceleratorHost, m.Accelerator)
			assert.GreaterOrEqual(t, m.Unit, 1.0)
			assert.True(t, m.Features["veth"], "features: %v", m.Features)
			assert.True(t, m.Features["nf_tables"], "features: %v", m.Features)
			t.Logf("machine: %+v", *m)
			steps := said(events, lab.EventStep)
			require.NotEmpty(t, steps)
			assert.Contains(t, steps[0], " ppid=1 uid=0")
			for _, l := range steps {
				if link, ok := strings.CutPrefix(l, "link="); ok {
					assert.Contains(t, []string{"all", "default", "lo"}, link)
				}
			}
		})
	}
}

func TestSandboxHasNamespacesOfItsOwn(t *testing.T) {
	for name, s := range sandboxes(t) {
		t.Run(name, func(t *testing.T) {
			events, err := do(t, s, lab.Job{}, "namespaces")
			require.NoError(t, err)
			for _, l := range said(events, lab.EventStep) {
				kind, id, _ := strings.Cut(l, "=")
				ours, err := os.Readlink("/proc/self/ns/" + kind)
				require.NoError(t, err)
				if kind == "user" && !s.userNamespace() {
					assert.Equal(t, ours, id)
					continue
				}
				assert.NotEqual(t, ours, id, kind)
			}
		})
	}
}

func TestSandboxReapsOrphansAndStealsNoStatus(t *testing.T) {
	for name, s := range sandboxes(t) {
		t.Run(name, func(t *testing.T) {
			events, err := do(t, s, lab.Job{}, "orphans")
			require.NoError(t, err)
			for _, l := range said(events, lab.EventStep) {
				assert.NotContains(t, l, "stolen")
			}
		})
	}
}

func TestSandboxFailures(t *testing.T) {
	s := &Sandbox{Unprivileged: os.Geteuid() != 0}
	t.Run("handler's error", func(t *testing.T) {
		events, err := do(t, s, lab.Job{}, "look", "refuse")
		require.EqualError(t, err, "the job makes no sense")
		assert.Contains(t, types(events), lab.EventEnd, "results so far are kept")
		assert.NotContains(t, types(events), lab.EventDone)
	})
	t.Run("killed", func(t *testing.T) {
		events, err := do(t, s, lab.Job{}, "look", "die")
		require.ErrorContains(t, err, "killed")
		require.ErrorContains(t, err, "farewell")
		assert.Contains(t, said(events, lab.EventLog), "farewell")
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := assert.AnError
		err := s.Run(ctx, lab.Job{Cells: []lab.Cell{{Scenario: "hang"}}}, func(e lab.Event) {
			if e.Message == "hanging" {
				cancel(enough)
			}
		})
		require.ErrorIs(t, err, enough)
	})
}

func TestUserNamespaceRemedy(t *testing.T) {
	for _, tt := range []struct {
		name     string
		files    map[string]string
		contains string
	}{
		{"none at all", map[string]string{"/proc/sys/user/max_user_namespaces": "0\n"}, "sysctl -w user.max_user_namespaces=10000"},
		{"Debian", map[string]string{"/proc/sys/user/max_user_namespaces": "9\n", "/proc/sys/kernel/unprivileged_userns_clone": "0\n"}, "sysctl -w kernel.unprivileged_userns_clone=1"},
		{"Ubuntu", map[string]string{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"}, "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"},
		{"container", nil, "container runtime"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := userNamespaceRemedy(func(path string) ([]byte, error) {
				if c, ok := tt.files[path]; ok {
					return []byte(c), nil
				}
				return nil, os.ErrNotExist
			})
			assert.Contains(t, got, tt.contains)
		})
	}
}
