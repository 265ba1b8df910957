package bench

import (
	"net/netip"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"kplab/lab"
)

func TestPoolNeverRepeatsAnEndpoint(t *testing.T) {
	var p pool
	seen := map[netip.AddrPort]bool{}
	for _, n := range []int{1, poolSize - 2, 3, 100, poolSize, 7} {
		addrs, port := p.take(n)
		require.Len(t, addrs, n)
		for _, a := range addrs {
			require.True(t, endpointRange.Contains(a), a)
			endpoint := netip.AddrPortFrom(a, uint16(port))
			require.False(t, seen[endpoint], "%s is handed out twice", endpoint)
			seen[endpoint] = true
		}
		assert.Less(t, port, firstPort+p.ports())
	}
}

func TestPopulation(t *testing.T) {
	var p pool
	services := population(5, 250, &p)
	require.Len(t, services, 5)
	assert.Equal(t, corev1.ServiceType(""), services[1].object.Spec.Type)
	assert.Equal(t, corev1.ServiceTypeNodePort, services[2].object.Spec.Type, "the last three have a NodePort")
	require.Len(t, services[0].slices, 3, "a slice has 100 endpoints at most")
	assert.Len(t, services[0].endpoints(), 250)
	before := services[0].endpoints()
	moved := services[0].replaceEndpoint(&p)
	after := services[0].endpoints()
	assert.False(t, before[moved])
	assert.True(t, after[moved])
	assert.Len(t, after, 250)
}

func TestOrderInChain(t *testing.T) {
	rules := `-A KUBE-SERVICES -d 10.96.0.12/32 -p tcp -m comment --comment "default/svc-2:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-A
-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment "default/other:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-B
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment "default/svc-0:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-C
`
	c := inChain{"KUBE-SERVICES", regexp.MustCompile(`(?m)^-A KUBE-SERVICES .*"default/(\S+):http cluster IP".* -j KUBE-SVC-`)}
	var p pool
	services := []*service{newService("svc-0", 1, &p), newService("svc-2", 1, &p)}
	ordered, err := c.order(rules, services)
	require.NoError(t, err)
	assert.Equal(t, []*service{services[1], services[0]}, ordered)
	_, err = c.order(rules, append(services, newService("svc-1", 1, &p)))
	assert.ErrorContains(t, err, "1 of 3 Services have no rule in KUBE-SERVICES")
}

func TestGapValues(t *testing.T) {
	attempt := func(at float64, outcome string) lab.Attempt { return lab.Attempt{AtMs: at, Outcome: outcome} }
	assert.Equal(t, []lab.Value{
		{Value: 55, Unit: "ms/gap"}, {Value: 40, Unit: "ms/longest-gap"}, {Value: 3, Unit: "attempts-failed"}, {Value: 6, Unit: "attempts"},
	}, gapValues([]lab.Attempt{
		attempt(-5, "ok"), attempt(0, "timeout"), attempt(5, "refused"), attempt(40, "ok"), attempt(45, "reset"), attempt(60, "ok"),
	}))
	assert.Equal(t, 10.0, gapValues([]lab.Attempt{attempt(0, "ok"), attempt(5, "timeout"), attempt(15, "timeout")})[0].Value,
		"a gap that does not end lasts until the last attempt")
}

func TestQuantiles(t *testing.T) {
	var samples []float64
	for i := range 101 {
		samples = append(samples, float64(100-i))
	}
	assert.Equal(t, []lab.Value{
		{Value: 1, Unit: "x-p01"}, {Value: 50, Unit: "x-p50"}, {Value: 90, Unit: "x-p90"}, {Value: 99, Unit: "x-p99"}, {Value: 50, Unit: "x-mean"},
	}, quantiles(samples, "x"))
	assert.Empty(t, quantiles(nil, "x"))
}
