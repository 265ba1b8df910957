package netns

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab/topology"
)

func TestStandardTopologyIsConnected(t *testing.T) {
	start := time.Now()
	n, err := build(topology.Standard(), "/", nil)
	require.NoError(t, err)
	t.Cleanup(n.close)
	t.Logf("built in %v", time.Since(start))

	for _, tc := range []struct{ from, to, address string }{
		{"ext", "n1", "primary"}, {"ext", "n2", "secondary"}, {"ext", "n1", "mgmt"}, {"ext", "n2", "floating"},
		{"n1", "n2", "primary"}, {"n1", "n2", "floating"}, {"n1", "s1", "primary"}, {"n1", "s2", "primary"},
		{"c1", "s1", "primary"}, {"c1", "s2", "primary"}, {"c2", "s1", "primary"}, {"c1", "ext", "primary"},
		{"ext", "s2", "primary"}, {"other", "n1", "primary"}, {"n1", "n1", "localhost"},
	} {
		for _, v6 := range []bool{false, true} {
			target, ok := n.hosts[tc.to].spec.Address(tc.address, v6)
			require.True(t, ok)
			require.NoError(t, exchange(n.hosts[tc.from], n.hosts[tc.to], target.Addr()), "%s to %s.%s %s", tc.from, tc.to, tc.address, target)
		}
	}
	assert.Error(t, exchange(n.hosts["other"], n.hosts["s1"], netip.MustParseAddr("10.244.1.10")), "other knows no way to pods")
}

// exchange connects from one host to a listener on another.
func exchange(from, to *host, target netip.Addr) error {
	var l net.Listener
	err := to.Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(target, 0).String())
		return err
	})
	if err != nil {
		return err
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	conn, err := from.Dial(ctx, "tcp", l.Addr().String())
	if err != nil {
		return err
	}
	return conn.Close()
}

func BenchmarkBuild(b *testing.B) {
	for b.Loop() {
		n, err := build(topology.Standard(), "/", nil)
		require.NoError(b, err)
		n.close()
	}
}
