package script

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
)

const nodePort = `
-- web.yaml --
apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  type: NodePort
  selector: {app: server}
  ports:
  - {name: a, port: 80}
  - {name: b, port: 81}
`

func TestIntrudes(t *testing.T) {
	for _, tt := range []struct{ name, lines, want string }{
		{"probes and looks", "claim N1\napply web.yaml\nkube-proxy start node=n1\nproxy-mode n1\nprobe -46 c1,ext tcp,udp svc/web,n1:nodeport/web and n1 icmp n2\nexpect reachable\nspread -6 c1 svc/web 9\ncontrol failed=0\nawait probe c1 tcp svc/web -- reachable\ndelete service/web\nkube-proxy sync", ""},
		{"a node", "sysctl n1 net.ipv4.ip_forward\nexpect = 1", "case.txtar:2: sysctl n1 net.ipv4.ip_forward: acts on a node"},
		{"awaits a node", "await metric n1 x -- > 0", "needs more of it than packets"},
		{"another kube-proxy", "kube-proxy start version=1.33.13", "configures kube-proxy"},
		{"kube-proxy's end", "kube-proxy stop", "stops or restarts kube-proxy"},
		{"kept connections", "spread -keep a c1 svc/web 9", "keeps connections"},
		{"connections in use", "spread -keep a -talk c1 svc/web 9", "keeps connections"},
		{"pods", "delete pod/s1", "deletes more than Services"},
		{"an address", "probe c1 tcp 10.96.0.10:80", "not known"},
		{"a load balancer", "probe c1 tcp lb/web:80", "from outside the cluster"},
		{"sctp", "probe c1 tcp,sctp svc/web", "load a module"},
		{"kept out", "[substrate:kind] kube-proxy stop\n[!substrate:cluster] exec n1 reboot\nprobe c1 tcp svc/web", ""},
		{"kept in", "[substrate:cluster] kube-proxy stop", "stops or restarts"},
		{"behind an end", "[substrate:cluster] end 'the rest restarts'\nkube-proxy restart", ""},
		{"behind an end that may not come", "[substrate:cluster] [mode:ipvs] end 'the rest restarts'\nkube-proxy restart", "stops or restarts"},
	} {
		s, err := Parse("case.txtar", "# It.\n"+tt.lines+"\n"+nodePort)
		require.NoError(t, err, tt.name)
		got := s.Intrudes()
		if tt.want == "" {
			assert.Empty(t, got, tt.name)
			assert.Empty(t, s.SubstrateUnmet(lab.ClusterSubstrate), tt.name)
			continue
		}
		assert.Contains(t, got, tt.want, tt.name)
		assert.Contains(t, s.SubstrateUnmet(lab.ClusterSubstrate), "is not for a cluster in use: case.txtar:", tt.name)
		assert.Empty(t, s.SubstrateUnmet("netns"), tt.name)
	}
}

func TestIntrudingObjects(t *testing.T) {
	for _, tt := range []struct{ name, kind, spec, want string }{
		{"plain", "v1\nkind: Service", "ports: [{port: 80, nodePort: 30080}]", ""},
		{"headless", "v1\nkind: Service", "clusterIP: None", ""},
		{"cloud", "v1\nkind: Service", "type: LoadBalancer", "would have a load balancer made for it"},
		{"alias", "v1\nkind: Service", "type: ExternalName", "leads outside"},
		{"external", "v1\nkind: Service", "externalIPs: [192.0.2.1]", "takes externalIPs"},
		{"chosen", "v1\nkind: Service", "clusterIP: 10.96.0.50", "of its own choice"},
		{"node", "v1\nkind: Node", "{}", "only Services are applied"},
	} {
		text := "# It.\napply a.yaml\n-- a.yaml --\napiVersion: " + tt.kind + "\nmetadata:\n  name: a\nspec:\n  " + tt.spec + "\n"
		s, err := Parse("case.txtar", text)
		require.NoError(t, err, tt.name)
		if tt.want == "" {
			assert.Empty(t, s.Intrudes(), tt.name)
		} else {
			assert.Contains(t, s.Intrudes(), tt.want, tt.name)
		}
	}
}

func TestServices(t *testing.T) {
	s, err := Parse("case.txtar", "# It.\napply web.yaml\napply web.yaml\n"+nodePort)
	require.NoError(t, err)
	services, ports := s.Services()
	assert.Equal(t, 1, services)
	assert.Equal(t, 2, ports)
}

func TestEndNeedsACondition(t *testing.T) {
	_, err := Parse("case.txtar", "# It.\nend 'for no reason'\n")
	assert.ErrorContains(t, err, "case.txtar:2: end: expected a condition")
}

// partialEnv has one family, no outside machine, and answers nothing.
type partialEnv struct{ lab.Env }

func (partialEnv) Nodes() []lab.Node    { return nil }
func (partialEnv) Hosts() []string      { return nil }
func (partialEnv) Cluster() lab.Cluster { return nil }
func (e partialEnv) Host(name string) (lab.Host, error) {
	return deafHost{name: name}, nil
}
func (e partialEnv) Lacks(from, _ string, family lab.Family) string {
	switch {
	case family == lab.IPv6:
		return "the cluster has no IPv6"
	case from == "ext":
		return "this machine is not on the nodes' network"
	}
	return ""
}

// deafHost refuses every probe without a socket.
type deafHost struct {
	lab.Host
	name string
}

func (h deafHost) Name() string { return h.name }
func (h deafHost) Address(string, lab.Family) (netip.Addr, bool) {
	return netip.MustParseAddr("192.0.2.1"), true
}
func (deafHost) Do(func() error) error { return errors.New("there are no sockets here") }

func runPartial(t *testing.T, mode lab.Mode, lines string) (verdict lab.Verdict, reason string, transcript []string) {
	t.Helper()
	s, err := Parse("case.txtar", "# It.\n"+lines+"\n")
	require.NoError(t, err)
	verdict, reason = s.Run(context.Background(), Setting{
		Env: partialEnv{}, Cell: lab.Cell{Mode: mode, Substrate: lab.ClusterSubstrate, KubeProxy: "1.37.2"},
		Check: func(lab.Check) {}, Log: func(line string) { transcript = append(transcript, line) },
	})
	return verdict, reason, transcript
}

func TestProbesThatTheEnvHasNoPlaceFor(t *testing.T) {
	verdict, reason, transcript := runPartial(t, lab.IPTables, "probe -6 c1 tcp s1:80\nexpect reachable\nprobe ext tcp n1:80\ncontrol reachable\nspread ext n1:80 3\nexpect failed=0")
	assert.Equal(t, lab.Skip, verdict)
	assert.Equal(t, "the cluster has no IPv6; this machine is not on the nodes' network", reason)
	assert.Contains(t, transcript, "  probe -6 c1 tcp s1:80: not made: the cluster has no IPv6")
}

func TestLinesAboutKubeProxyWhereThereIsNone(t *testing.T) {
	verdict, reason, transcript := runPartial(t, lab.NoKubeProxy, "claim N1\nprobe ext tcp n1:80\n[mode:nftables] expect refused\n[!mode:nftables] expect reachable\n[kube-proxy:>=1.37] control reachable")
	assert.Equal(t, lab.Skip, verdict)
	assert.Equal(t, "every check is about kube-proxy's modes, and there is no kube-proxy", reason)
	assert.Contains(t, transcript, "left out, since there is no kube-proxy: [!mode:nftables] expect reachable")
}

func TestEndKeepsWhatWasChecked(t *testing.T) {
	verdict, reason, _ := runPartial(t, lab.IPTables, "[substrate:cluster] end 'nothing to do'\nexec n1 reboot")
	assert.Equal(t, lab.Error, verdict)
	assert.Equal(t, "the script made no check in this setting", reason)
}

// Claims are about kube-proxy: what a cluster without it does neither confirms nor contradicts them.
func TestNoClaimIsBorneOnWithoutKubeProxy(t *testing.T) {
	for mode, want := range map[lab.Mode]string{lab.NoKubeProxy: "", lab.IPTables: "N1"} {
		assert.Equal(t, want, (&session{Setting: Setting{Cell: lab.Cell{Mode: mode}}, claim: "N1"}).claimed(), mode)
	}
}
