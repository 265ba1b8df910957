package sabotage

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"kplab/lab"
)

func TestTry(t *testing.T) {
	done := func(bites int, err string) *lab.Sabotage { return &lab.Sabotage{Bites: bites, Error: err} }
	for name, tt := range map[string]struct {
		sabotage string
		result   lab.Result
		want     Outcome
		reason   string
	}{
		"a check deviates":                        {NoKubeProxy, lab.Result{Verdict: lab.Fail, Reason: "r", Sabotage: done(2, "")}, Turned, "r"},
		"a control deviates":                      {NoKubeProxy, lab.Result{Verdict: lab.Error, Reason: "r", Sabotage: done(2, "")}, Turned, "r"},
		"nothing deviates":                        {"wrong-mode", lab.Result{Verdict: lab.Pass, Sabotage: done(1, "")}, Survived, ""},
		"never met":                               {"wrong-address", lab.Result{Verdict: lab.Pass, Sabotage: done(0, "")}, NotApplicable, ""},
		"no kube-proxy was ever asked for":        {NoKubeProxy, lab.Result{Verdict: lab.Pass, Sabotage: done(0, "")}, Survived, ""},
		"skip is no turn":                         {NoKubeProxy, lab.Result{Verdict: lab.Skip, Reason: "r", Sabotage: done(1, "")}, NotApplicable, "r"},
		"the machine died":                        {NoKubeProxy, lab.Result{Verdict: lab.Error, Reason: "cut off: panic"}, Unknown, "cut off: panic"},
		"a pass that no sabotage was done to":     {"wrong-mode", lab.Result{Verdict: lab.Pass}, Unknown, ""},
		"the sabotage could not be carried out":   {"flushed-tables", lab.Result{Verdict: lab.Error, Reason: "x:3: r", Sabotage: done(1, "nft: exit status 1")}, Unknown, "nft: exit status 1"},
		"deviates before the sabotage is met":     {"wrong-address", lab.Result{Verdict: lab.Fail, Reason: "r", Sabotage: done(0, "")}, Unknown, "deviates, though the script never met what was broken: r"},
		"passes though it could not be sabotaged": {"flushed-tables", lab.Result{Verdict: lab.Pass, Sabotage: done(3, "nft: exit status 1")}, Unknown, "nft: exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Try(tt.sabotage, tt.result)
			assert.Equal(t, tt.want, got.Outcome)
			assert.Equal(t, tt.reason, got.Reason)
			assert.Equal(t, tt.result.Verdict, got.Verdict)
		})
	}
}

func TestFinding(t *testing.T) {
	pass := lab.Result{Cell: lab.Cell{Scenario: "s", Mode: lab.IPVS, Kernel: lab.Kernel{Name: "host"}, KubeProxy: "1.37.2", Userland: lab.Userland{Name: lab.DefaultUserland}, Substrate: lab.DefaultSubstrate}, Verdict: lab.Pass}
	as := func(v lab.Verdict, reason string) lab.Result {
		r := pass
		r.Verdict, r.Reason = v, reason
		return r
	}
	trial := func(name string, o Outcome) Trial { return Trial{Sabotage: name, Outcome: o, Reason: "r"} }
	for name, tt := range map[string]struct {
		baseline lab.Result
		trials   []Trial
		want     Outcome
		reason   string
	}{
		"turned by the first":                      {pass, []Trial{trial(NoKubeProxy, Turned)}, Turned, ""},
		"turned by one of all":                     {pass, []Trial{trial(NoKubeProxy, Turned), trial("wrong-mode", Survived), trial("wrong-address", NotApplicable)}, Turned, ""},
		"passes without kube-proxy":                {pass, []Trial{trial(NoKubeProxy, Survived), trial("dead-endpoints", Turned)}, Survived, "passes without kube-proxy"},
		"survives all that apply":                  {pass, []Trial{trial("wrong-mode", Survived), trial("wrong-address", NotApplicable)}, Survived, "passes under every sabotage that applies to it"},
		"not known whether it needs kube-proxy":    {pass, []Trial{trial(NoKubeProxy, Unknown), trial("wrong-mode", Turned)}, Unknown, "no-kube-proxy: r"},
		"one unknown among survivals":              {pass, []Trial{trial("wrong-mode", Survived), trial("flushed-tables", Unknown)}, Unknown, "flushed-tables: r"},
		"nothing was tried":                        {pass, nil, Unknown, "no sabotage was tried"},
		"skipped here":                             {as(lab.Skip, "why"), nil, NotApplicable, "why"},
		"fails as it is":                           {as(lab.Fail, "why"), nil, Unknown, "does not pass without sabotage: why"},
		"the lab cannot tell even as it is":        {as(lab.Error, "why"), nil, Unknown, "does not pass without sabotage: why"},
		"fails as it is, whatever trials then say": {as(lab.Fail, "why"), []Trial{trial(NoKubeProxy, Turned)}, Unknown, "does not pass without sabotage: why"},
	} {
		t.Run(name, func(t *testing.T) {
			f := NewFinding(tt.baseline)
			for _, x := range tt.trials {
				f.Add(x)
			}
			assert.Equal(t, tt.want, f.Outcome)
			assert.Equal(t, tt.reason, f.Reason)
		})
	}
	assert.Equal(t, "kplab selftest s --mode ipvs --kernel host --kube-proxy 1.37.2 --all", NewFinding(pass).Repeat)
}
