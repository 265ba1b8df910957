package script

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
)

const service = `
-- web.yaml --
apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  selector: {app: server}
  ports:
  - port: 80
`

func TestParse(t *testing.T) {
	s, err := Parse("dir/case.txtar", `# What it shows.
# More about it.
requires feature:ip_vs 'there must be IPVS'
[mode:nftables] requires kube-proxy:>=1.37 'the gate is new'
claim N1
apply web.yaml
kube-proxy start version=1.33.13 nodePortAddresses=0.0.0.0/0,::/0
probe -46 c1,n1 tcp,udp svc/web
[!mode:ipvs] [kernel:>=6.1] expect reachable endpoint=s1,s2 contradicts 'it is so'
claim X9 'k/k#1' 'a claim of my own'
metric n1 kubeproxy_x
save before
expect > $before
`+service)
	require.NoError(t, err)
	assert.Equal(t, "case", s.Name)
	assert.Equal(t, "What it shows", s.Summary)
	require.Len(t, s.Claims, 2)
	assert.Equal(t, "N1", s.Claims[0].ID)
	assert.Equal(t, "k/k#1", s.Claims[1].Source)
	assert.Equal(t, []Requirement{
		{Conditions: []string{}, Needs: "feature:ip_vs", Reason: "there must be IPVS"},
		{Conditions: []string{"mode:nftables"}, Needs: "kube-proxy:>=1.37", Reason: "the gate is new"},
	}, s.Requirements)
	assert.Equal(t, []string{"1.33.13"}, s.KubeProxies())
}

func TestParseErrorsNameTheLine(t *testing.T) {
	for _, tc := range []struct{ name, line, want string }{
		{"unknown command", "prob c1 tcp svc/web", `case.txtar:2: unknown command "prob": did you mean "probe"?`},
		{"too few words", "probe c1 tcp", "case.txtar:2: probe: expected hosts, protocols and targets; got 2 words"},
		{"protocol", "probe c1 tpc svc/web", `case.txtar:2: probe: unknown protocol "tpc": did you mean "tcp"?`},
		{"target", "probe c1 tcp service/web", `case.txtar:2: probe: target "service/web": unknown "service/"`},
		{"address name", "probe c1 tcp n1.secundary:80", `unknown address "secundary": did you mean "secondary"?`},
		{"condition name", "[mod:ipvs] expect refused", `case.txtar:2: unknown condition [mod:ipvs]: did you mean "mode:"?`},
		{"condition value", "[mode:nftable] expect refused", `case.txtar:2: condition [mode:nftable]: unknown value "nftable": did you mean "nftables"?`},
		{"condition version", "[kernel:6.1] expect refused", `"6.1": expected a comparison`},
		{"outcome", "expect refusd", `case.txtar:2: expect: unknown outcome "refusd": did you mean "refused"?`},
		{"comparison", "expect > many", `case.txtar:2: expect: >: "many" is not a number`},
		{"pattern", "expect ~ '('", "case.txtar:2: expect: error parsing regexp"},
		{"mode", "kube-proxy start mode=ipv", `case.txtar:2: kube-proxy: unknown mode "ipv": did you mean "ipvs"?`},
		{"version", "kube-proxy start version=1.37", `version "1.37": expected X.Y.Z`},
		{"file", "apply wen.yaml", `case.txtar:2: apply: no file "wen.yaml" in the archive: did you mean "web.yaml"?`},
		{"count", "count n1 ipset", `case.txtar:2: count: cannot count "ipset": did you mean "ipsets"?`},
		{"quote", "claim X s 'unterminated", "case.txtar:2: unterminated quoted argument"},
		{"probe group", "probe c1 tcp svc/web and c2 tcp", "case.txtar:2: probe: expected hosts, protocols and targets; got 2 words"},
		{"await what", "await apply web.yaml -- > 0", `case.txtar:2: await: cannot await "apply"`},
		{"await until", "await metric n1 x", "case.txtar:2: await: expected a command, -- and what to wait for"},
		{"awaited command", "await count n1 ipset -- > 0", `cannot count "ipset": did you mean "ipsets"?`},
		{"awaited expectation", "await count n1 ipsets -- > many", `"many" is not a number`},
		{"http path", "http n1 localhost:10256 healthz", "case.txtar:2: http: expected a host, a target and a path"},
		{"health check of", "http n1 n1:healtcheck/web /", "nodeport/SVC, port/SVC or healthcheck/SVC"},
		{"stream", "stream flow c1", "case.txtar:2: stream: expected a name, a host and a target"},
		{"one-way stream", "stream flow -one-way c1", "case.txtar:2: stream: expected a name, a host and a target"},
		{"streamed", "streamed", "case.txtar:2: streamed: expected a name, and perhaps in quotes what has changed"},
		{"state", "state n1 after n2", "case.txtar:2: state: expected a node and in quotes which moment it is"},
		{"planted kind", "plant n1 ipsets FOREIGN", `case.txtar:2: plant: unknown kind "ipsets": did you mean "ipset"?`},
		{"readiness", "readiness n1 n1:nodeport/web", "case.txtar:2: readiness: expected a node, a host and a target"},
		{"newer set", "newer-nft-set remove n1 t s", "case.txtar:2: newer-nft-set: expected add or delete"},
		{"requires", "requires feature 'why'", "case.txtar:2: requires: unknown condition [feature]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse("case.txtar", "# It.\n"+tc.line+"\n"+service)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestUnsetModeIsNoModeInTheConfiguration(t *testing.T) {
	p, err := parseProxyCommand([]string{"start", "node=n1", "mode=unset"})
	require.NoError(t, err)
	mode, set := p.options.Set["mode"]
	assert.True(t, set)
	assert.Empty(t, mode)
}

func TestProbeGroupsAreNotMultipliedOut(t *testing.T) {
	one, err := parseProbes([]lab.Family{lab.IPv4, lab.IPv6}, []string{"c1,c2", "tcp,udp", "svc/a,svc/b"})
	require.NoError(t, err)
	assert.Len(t, one, 16)
	assert.Equal(t, "probe c1 tcp svc/a", one[0].String())
	assert.Equal(t, "probe -6 c2 udp svc/b", one[15].String())
}

func TestParseReportsEveryError(t *testing.T) {
	_, err := Parse("case.txtar", "expect refusd\nprob\n-- web.yaml --\nkind: Service\n")
	require.Error(t, err)
	assert.ErrorContains(t, err, "case.txtar:1: expected a comment")
	assert.ErrorContains(t, err, "case.txtar:1: expect: unknown outcome")
	assert.ErrorContains(t, err, "case.txtar:2: unknown command")
	assert.ErrorContains(t, err, "case.txtar:4: ", "of the manifest")
}

func TestExpectation(t *testing.T) {
	o := observation{outcome: "reachable", attrs: map[string]string{"endpoint": "s1", "source": "n1", "s1": "12"}}
	for _, tc := range []struct {
		args []string
		o    observation
		want bool
	}{
		{[]string{"reachable"}, o, true},
		{[]string{"refused"}, o, false},
		{[]string{"refused,reachable"}, o, true},
		{[]string{"reachable", "endpoint=s1,s2"}, o, true},
		{[]string{"reachable", "endpoint=s2"}, o, false},
		{[]string{"reachable", "endpoint=s1", "source!=c1"}, o, true},
		{[]string{"s1>=10"}, o, true},
		{[]string{"s1>=10", "s2=0"}, o, true},
		{[]string{"s2>=1"}, o, false},
		{[]string{"=", "0"}, observation{outcome: "0"}, true},
		{[]string{">", "9"}, observation{outcome: "10"}, true},
		{[]string{">", "9"}, observation{outcome: "absent"}, false},
		{[]string{"absent"}, observation{outcome: "absent"}, true},
		{[]string{"!=", "0"}, observation{outcome: "absent"}, true},
		{[]string{"~", "kernel 5.1[3]"}, observation{outcome: "requires kernel 5.13 or later"}, true},
		{[]string{"!~", "kernel"}, observation{outcome: "requires kernel 5.13 or later"}, false},
	} {
		e, err := parseExpectation(tc.args)
		require.NoError(t, err, "%q", tc.args)
		assert.Equal(t, tc.want, e.meets(tc.o), "%q against %v", tc.args, tc.o)
	}
}

func TestCompareVersions(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{
		{"6.1.0-57-cloud-amd64", "6.1", 0}, {"6.18.44-fc-v782", "6.1", 1}, {"5.10.0-30", "5.13", -1}, {"1.37.2", "1.37.2", 0},
		{"v1.37.2", "1.38", -1}, {"7.0", "6.18", 1}, {"6", "6.1", -1},
	} {
		assert.Equal(t, tc.want, CompareVersions(tc.a, tc.b), "%s against %s", tc.a, tc.b)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("# It.\nclaim N1\nprobe -46 c1 tcp svc/web\n[mode:ipvs] expect reachable\n" + service)
	f.Add("[!kernel:>=6.1] kube-proxy start a.b=c -may-exit --x env:A=b\nsave x\nexpect > $x\n")
	f.Add("# x\n'\n[]\n! ?\n-- a --\n-- a --\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse("fuzz.txtar", text) // must neither panic nor hang
		if err == nil {
			require.NotEmpty(t, s.Summary)
		}
	})
}
