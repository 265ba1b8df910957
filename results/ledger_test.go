package results

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
)

func TestLedger(t *testing.T) {
	good := check("s.txtar:9", "N1", "probe", "reachable", "reachable")
	bad := deviating(check("s.txtar:9", "N1", "probe", "reachable", "refused"))
	wrong := contradicting(check("s.txtar:9", "N1", "probe", "refused", "refused"), "it is refused")
	one := func(v lab.Verdict, mode lab.Mode, checks ...lab.Check) lab.Result {
		return result(cell("s", mode, onHost, "1.37.2"), v, 1, checks...)
	}
	const nft, ipt = "nftables / host 6.18.5 / 1.37.2", "iptables / host 6.18.5 / 1.37.2"
	const inNFT = " [nftables; host 6.18.5; 1.37.2]"
	for name, tt := range map[string]struct {
		cells    []lab.Result
		want     ClaimVerdict
		note     string
		settings []string
	}{
		"no cell":                         {nil, Untested, "", []string{}},
		"seen":                            {[]lab.Result{one(lab.Pass, lab.NFTables, good)}, Confirmed, "", []string{nft}},
		"seen in a cell that failed":      {[]lab.Result{one(lab.Fail, lab.NFTables, good)}, Confirmed, "", []string{nft}},
		"an error cell tells nothing":     {[]lab.Result{one(lab.Error, lab.NFTables, good, bad, wrong)}, Untested, "", []string{}},
		"a skipped cell tells nothing":    {[]lab.Result{one(lab.Skip, lab.NFTables, good)}, Untested, "", []string{}},
		"a control alone tests nothing":   {[]lab.Result{one(lab.Pass, lab.NFTables, control(good))}, Untested, "", []string{}},
		"a control that deviates neither": {[]lab.Result{one(lab.Fail, lab.NFTables, good, control(bad))}, Confirmed, "", []string{nft}},
		"reality is asserted and differs": {
			[]lab.Result{one(lab.Pass, lab.NFTables, wrong), one(lab.Pass, lab.IPTables, wrong, good)},
			Contradicted, "it is refused [iptables, nftables; host 6.18.5; 1.37.2]", []string{nft, ipt},
		},
		"a deviation": {
			[]lab.Result{one(lab.Pass, lab.IPTables, good), one(lab.Fail, lab.NFTables, bad)},
			Contradicted, "probe: expected reachable, observed refused (s.txtar:9)" + inNFT, []string{ipt, nft},
		},
		"a deviation of what contradicts says what was seen": {
			[]lab.Result{one(lab.Fail, lab.NFTables, deviating(wrong))},
			Contradicted, "probe: expected refused, observed refused (s.txtar:9)" + inNFT, []string{nft},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Ledger([]lab.Claim{{ID: "N1", Source: "vips", Text: "text"}}, &Run{Cells: tt.cells})
			require.Len(t, got, 1)
			assert.Equal(t, lab.Claim{ID: "N1", Source: "vips", Text: "text"}, got[0].Claim)
			assert.Equal(t, tt.want, got[0].Verdict)
			assert.Equal(t, tt.note, got[0].Note)
			assert.Equal(t, tt.settings, got[0].Settings)
			assert.Len(t, got[0].Cells, len(tt.settings))
		})
	}
}

func TestLedgerOfSeveralRuns(t *testing.T) {
	one := func(claim, version string) *Run {
		return &Run{Cells: []lab.Result{result(cell("s", lab.NFTables, onHost, version), lab.Pass, 1, check("s.txtar:9", claim, "p", "x", "x"))}}
	}
	got := Ledger([]lab.Claim{{ID: "N1"}}, one("N1", "1.37.2"), one("X10", "1.37.2"), one("N1", "1.35.4"), one("X2", "1.37.2"))
	var ids []string
	for _, c := range got {
		ids = append(ids, c.ID)
		assert.Equal(t, Confirmed, c.Verdict)
	}
	assert.Equal(t, []string{"N1", "X2", "X10"}, ids, "claims that the catalogue lacks are kept")
	assert.Equal(t, []string{"nftables / host 6.18.5 / 1.37.2", "nftables / host 6.18.5 / 1.35.4"}, got[0].Settings)
}

func TestLedgerNoteIsShort(t *testing.T) {
	var checks []lab.Check
	for _, line := range []string{"1", "2", "3", "4", "5", "6"} {
		checks = append(checks, deviating(check("s.txtar:"+line, "N1", "p", "x", "y")))
	}
	got := Ledger(nil, &Run{Cells: []lab.Result{result(cell("s", lab.NFTables, onHost, "1.37.2"), lab.Fail, 1, checks...)}})
	assert.Contains(t, got[0].Note, "s.txtar:4")
	assert.NotContains(t, got[0].Note, "s.txtar:5")
	assert.Contains(t, got[0].Note, "; and 2 more")
}
