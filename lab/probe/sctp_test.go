package probe

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestSCTP(t *testing.T) {
	tp := newTopology(t)
	s, err := Serve(tp.server, "s1", "sctp", 8080)
	if errors.Is(err, errors.ErrUnsupported) {
		_, err = Dial(t.Context(), tp.client, Request{Network: "sctp", Target: netip.AddrPortFrom(server4, 8080), Timeout: patient})
		require.ErrorIs(t, err, errors.ErrUnsupported)
		t.Skip(err)
	}
	require.NoError(t, err)
	fw := newFirewall(t, tp.router)
	fw.forward(unix.IPPROTO_SCTP, 8082, reject(unix.NFT_REJECT_ICMPX_PORT_UNREACH))
	fw.forward(unix.IPPROTO_SCTP, 8086, drop())
	fw.load()
	for _, c := range []struct {
		target, want string
	}{
		{"10.0.2.2:8080", "reachable (s1, seen from 10.0.1.2)"},
		{"[fd00:2::2]:8080", "reachable (s1, seen from fd00:1::2)"},
		{"10.0.2.2:8081", "refused (abort)"},
		{"[fd00:2::2]:8081", "refused (abort)"},
		{"10.0.2.2:8082", "refused (icmp port-unreachable)"},
		{"10.0.2.2:8086", "timeout"},
	} {
		timeout := patient
		if c.want == "timeout" {
			timeout = impatient
		}
		o, err := Dial(t.Context(), tp.client, Request{Network: "sctp", Target: netip.MustParseAddrPort(c.target), Timeout: timeout})
		require.NoError(t, err)
		assert.Equal(t, c.want, o.String(), c.target)
	}
	conn, _, err := Hold(t.Context(), tp.client, Request{Network: "sctp", Target: netip.AddrPortFrom(server6, 8080), Timeout: patient})
	require.NoError(t, err)
	state, err := conn.Exchange(t.Context(), 64<<10)
	require.NoError(t, err)
	assert.Equal(t, Alive, state)
	assert.Equal(t, 1, s.Open())
	require.NoError(t, s.Close())
	assert.Eventually(t, func() bool { return conn.State() == Closed }, patient, time.Millisecond)
	require.NoError(t, conn.Close())
}
