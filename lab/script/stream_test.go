package script

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"kplab/lab/probe"
)

func TestFlowObservation(t *testing.T) {
	for _, tc := range []struct {
		name           string
		count          probe.FlowCount
		outcome, print string
		endpoint       string
	}{
		{"answered", probe.FlowCount{Sent: 5, Answered: map[string]int{"s1": 5}, Last: "s1"}, "reachable", "reachable (s1)", "s1"},
		{"it moved", probe.FlowCount{Sent: 5, Answered: map[string]int{"s1": 1, "s2": 4}, Last: "s2"}, "reachable", "reachable (s1), reachable (s2)", "s2"},
		{"refused", probe.FlowCount{Sent: 5, Errors: map[string]int{"refused (icmp port-unreachable)": 5}}, "refused", "refused (icmp port-unreachable)", ""},
		{"not sent", probe.FlowCount{Errors: map[string]int{"unreachable (EPERM)": 5}}, "unreachable", "unreachable (EPERM)", ""},
		{"answered after an error", probe.FlowCount{Sent: 5, Answered: map[string]int{"s1": 4}, Errors: map[string]int{"refused (icmp port-unreachable)": 1}, Last: "s1"},
			"reachable", "refused (icmp port-unreachable), reachable (s1)", "s1"},
		{"silence", probe.FlowCount{Sent: 5}, "timeout", "timeout", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := flowObservation("streamed x", tc.count)
			assert.Equal(t, tc.outcome, o.outcome)
			assert.Equal(t, tc.print, o.String())
			assert.Equal(t, tc.endpoint, o.attrs["endpoint"])
		})
	}
}
