package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"kplab/lab"
)

func TestTrialsTakeTurns(t *testing.T) {
	s := DefaultSettings()
	s.Modes, s.Services, s.Count = []lab.Mode{lab.IPTables, lab.NFTables}, []int{1000, 10}, 2
	var order []string
	for _, trial := range s.Trials() {
		order = append(order, fmt.Sprintf("%s %d run %d", trial.Mode, trial.Services, trial.Run))
	}
	assert.Equal(t, []string{
		"iptables 10 run 0", "nftables 10 run 0",
		"iptables 10 run 1", "nftables 10 run 1", "iptables 10 run 2", "nftables 10 run 2",
		"iptables 1000 run 1", "nftables 1000 run 1", "iptables 1000 run 2", "nftables 1000 run 2",
	}, order)
}

func TestTrialsOfTheirOwn(t *testing.T) {
	s := DefaultSettings()
	s.Benches, s.Modes, s.Services, s.Count = []string{Sync, Churn, Switch}, []lab.Mode{lab.IPTables, lab.NFTables}, []int{10}, 1
	var found []string
	for _, trial := range s.Trials() {
		if trial.Run > 0 {
			found = append(found, fmt.Sprintf("%v %s%s %s", trial.Benches, trial.Mode, trial.To, trial.MinSyncPeriod))
		}
	}
	assert.Equal(t, []string{
		"[sync] iptables 10ms", "[churn] iptables 1s", "[sync] nftables 10ms", "[churn] nftables 1s",
		"[switch] iptablesnftables 10ms", "[switch] nftablesiptables 10ms",
	}, found, "churn is with kube-proxy's own period, and a switch is each mode to each other one")
}

func TestSettingsAreValidated(t *testing.T) {
	assert.NoError(t, DefaultSettings().Validate())
	assert.NoError(t, QuickSettings().Validate())
	for _, tc := range []struct {
		want   string
		change func(*Settings)
	}{
		{`unknown benchmark "synch": did you mean "sync"?`, func(s *Settings) { s.Benches = []string{"synch"} }},
		{"0 Services: expected 1 to", func(s *Settings) { s.Services = []int{100, 0} }},
		{"100000 Services: expected 1 to", func(s *Settings) { s.Services = []int{100_000} }},
		{"0 endpoints for each Service", func(s *Settings) { s.Endpoints = []int{0} }},
		{"a million endpoints at most", func(s *Settings) { s.Services, s.Endpoints = []int{10_000}, []int{1000} }},
		{"each trial 0 times", func(s *Settings) { s.Count = 0 }},
		{"5 connections for each point", func(s *Settings) { s.Samples = 5 }},
		{"0 endpoint changes a second", func(s *Settings) { s.Rates = []int{0} }},
		{"a minimal sync period of 1h0m0s", func(s *Settings) { s.MinSyncPeriod = time.Hour }},
		{"a duration of 1ms", func(s *Settings) { s.Duration = time.Millisecond }},
		{"no mode", func(s *Settings) { s.Modes = nil }},
	} {
		s := DefaultSettings()
		tc.change(&s)
		assert.ErrorContains(t, s.Validate(), tc.want)
	}
}
