package results

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kplab/lab"
)

func book() *Book {
	claims := append([]lab.Claim{{ID: "B1", Source: "blog", Text: "nftables mode is faster", Untested: "it is a measurement"}}, catalogue...)
	for i := range claims {
		if claims[i].ID == "N5" {
			claims[i].Reality = "127.0.0.1:nodePort times out in ipvs mode, and answers in iptables mode only"
		}
	}
	return NewBook(Catalogue{Claims: claims, Scenarios: map[string][]string{
		"N1": {"nodeport-secondary-address"}, "N5": {"nodeport-localhost"}, "N9": {"nodeport-localhost"}, "K1": {"kernel-floor"},
		"C1": {"conntrack-invalid-reset"}, "I5": {"scenario-of-another-run"},
	}}, sample())
}

func row(t *testing.T, b *Book, id string) BookRow {
	t.Helper()
	for _, r := range b.Claims {
		if r.ID == id {
			return r
		}
	}
	require.Fail(t, "no row", id)
	return BookRow{}
}

func TestBook(t *testing.T) {
	b := book()
	require.Len(t, b.Claims, len(catalogue)+1)
	require.Len(t, b.Runs, 1)
	assert.Equal(t, "results/20261130T015301Z", b.Runs[0].Dir)

	n1 := row(t, b, "N1")
	assert.Equal(t, Confirmed, n1.Verdict)
	assert.Equal(t, []string{"ipvs", "iptables", "nftables"}, n1.Modes)
	assert.Equal(t, []string{"debian-12 6.1.0-39-cloud-amd64 tcg", "host 6.18.5"}, n1.Kernels)
	assert.Equal(t, []string{"1.37.2"}, n1.KubeProxies)
	assert.Empty(t, n1.Evidence, "these cells left none")
	assert.Empty(t, n1.Really)

	n5 := row(t, b, "N5")
	assert.Equal(t, Contradicted, n5.Verdict)
	assert.Equal(t, []string{
		"127.0.0.1:nodePort times out in ipvs mode, and answers in iptables mode only [ipvs; debian-12 6.1.0-39-cloud-amd64 tcg; 1.37.2]",
		"probe n1 tcp localhost:nodeport/web: expected reachable, observed refused (nodeport-localhost.txtar:15) [iptables; host 6.18.5; 1.37.2]",
	}, n5.Really, "what is asserted in the catalogue's words, what deviates as it was seen")
	assert.Equal(t, []string{"results/20261130T015301Z/cells/nodeport-localhost.iptables.host.1.37.2.debian-12.netns/"}, n5.Evidence)

	for id, want := range map[string]string{
		"B1": "it is a measurement",
		"C1": "conntrack-invalid-reset: error: not started: interrupted",
		"I5": "not in these runs: scenario-of-another-run",
	} {
		r := row(t, b, id)
		assert.Equal(t, Untested, r.Verdict)
		assert.Equal(t, want, r.Why)
	}
	assert.Equal(t, "kernel-floor: asserts nothing of it in the settings of these runs",
		row(t, NewBook(Catalogue{Claims: catalogue, Scenarios: map[string][]string{"I5": {"kernel-floor"}}}, &Run{Cells: sample().Cells[6:7]}), "I5").Why)
	assert.Equal(t, "no scenario bears on it", row(t, NewBook(Catalogue{Claims: catalogue}), "I5").Why)
}

// A contradiction in the scenario's words, where the catalogue has none.
func TestBookWithoutReality(t *testing.T) {
	really := row(t, NewBook(Catalogue{Claims: catalogue}, sample()), "N5").Really
	require.Len(t, really, 2)
	assert.Equal(t, "127.0.0.1:nodePort times out in ipvs mode [ipvs; debian-12 6.1.0-39-cloud-amd64 tcg; 1.37.2]", really[0])
}

func TestBookOfSeveralRuns(t *testing.T) {
	one := func(version string, checks ...lab.Check) *Run {
		r := leaving(result(cell("s", lab.NFTables, onHost, version), lab.Pass, 1, checks...), "n1/nft.txt")
		return &Run{ID: version, Dir: "results/" + version, Cells: []lab.Result{r}}
	}
	good := check("s.txtar:9", "N1", "p", "x", "x")
	wrong := contradicting(good, "it is not so")
	own := &Run{Claims: []ClaimResult{{Claim: lab.Claim{ID: "X1", Source: "a report", Text: "of a run's own"}}}}
	b := NewBook(Catalogue{Claims: catalogue}, one("1.37.2", good), one("1.33.13", wrong), one("1.35.4", good), own)
	n1 := row(t, b, "N1")
	assert.Equal(t, Contradicted, n1.Verdict, "once is enough")
	assert.Equal(t, []string{"1.33.13", "1.35.4", "1.37.2"}, n1.KubeProxies)
	assert.Equal(t, []string{"it is not so [nftables; host 6.18.5; 1.33.13]"}, n1.Really)
	assert.Equal(t, []string{"results/1.33.13/cells/s.nftables.host.1.33.13.debian-12.netns/"}, n1.Evidence, "of what contradicts it")
	assert.Equal(t, "of a run's own", row(t, b, "X1").Text, "what the catalogue lacks is taken from the runs")
}

func TestBookRendered(t *testing.T) {
	for name, render := range map[string]func(io.Writer) error{
		"book.txt": func(w io.Writer) error { return book().Text(w, TextOptions{Width: 80}) },
		"book.md":  func(w io.Writer) error { return book().Markdown(w) },
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, render) })
	}
	for _, width := range []int{40, 60, 100, 200} {
		var text bytes.Buffer
		require.NoError(t, book().Text(&text, TextOptions{Width: width}))
		for line := range strings.Lines(text.String()) {
			if !strings.Contains(line, "results/") { // a path is to be copied whole
				assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), width, line)
			}
		}
	}
	text, err := json.Marshal(book())
	require.NoError(t, err)
	assert.NotContains(t, string(text), "null", "lists are lists")
	var back Book
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, *book(), back)
}
