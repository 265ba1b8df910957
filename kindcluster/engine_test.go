package kindcluster

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"

	"kplab/lab"
)

// machineNetwork is what an engine could change of a machine's.
func machineNetwork(t *testing.T) (seen []string) {
	links, err := netlink.LinkList()
	require.NoError(t, err)
	for _, l := range links {
		seen = append(seen, "link "+l.Attrs().Name)
	}
	nft, err := nftables.New()
	require.NoError(t, err)
	chains, err := nft.ListChains()
	require.NoError(t, err)
	for _, c := range chains {
		seen = append(seen, "chain "+c.Table.Name+" "+c.Name)
	}
	for _, key := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv4/conf/all/route_localnet"} {
		value, err := os.ReadFile("/proc/sys/net/" + key)
		require.NoError(t, err)
		seen = append(seen, key+"="+strings.TrimSpace(string(value)))
	}
	return seen
}

// TestKindEngine starts an engine of the lab and finds nothing of it in the machine's network, while it runs and after.
func TestKindEngine(t *testing.T) {
	if os.Getenv("KPLAB_TEST_KIND") == "" {
		t.Skip("starts a container engine: set KPLAB_TEST_KIND=1, as make test-kind does")
	}
	before := machineNetwork(t)
	folder, err := os.MkdirTemp("", Prefix+"-engine-") // t.TempDir's path is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(folder)) })
	runc, err := exec.LookPath("runc")
	require.NoError(t, err)
	e, err := StartEngine(t.Context(), folder, runc, lab.Deadlines{})
	require.NoError(t, err)
	_, err = e.Run(t.Context(), "network", "create", "--ipv6", "--subnet", "fd00:fffe::/64", Prefix+"-test")
	require.NoError(t, err)
	assert.ElementsMatch(t, before, machineNetwork(t), "while it runs, with a network")
	require.NoError(t, StopEngine(t.Context(), folder))
	assert.ElementsMatch(t, before, machineNetwork(t), "after")
	_, err = e.Run(t.Context(), "info")
	assert.Error(t, err, "it is gone")
	require.NoError(t, StopEngine(t.Context(), folder), "stopping it again is no error")
}
