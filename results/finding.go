package results

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"kplab/lab"
)

const (
	maxFiles = 5 // names of evidence beside the folder
	maxCells = 6 // scenarios, and settings of each, named for one reason
)

// group is cells that came to the same verdict for the same reason.
type group struct {
	verdict lab.Verdict
	reason  string
	cells   []lab.Result
}

// findings sorts out the cells that a person has to look at: every fail and every error that has something of its own to
// show, each as a group of one; then errors and skips that share a reason and show nothing else.
func findings(run *Run) (single, shared []group) {
	for _, v := range []lab.Verdict{lab.Fail, lab.Error, lab.Skip} {
		for _, c := range run.Cells {
			if c.Verdict != v {
				continue
			}
			if v == lab.Fail || v == lab.Error && (len(Deviations(c)) > 0 || len(c.Evidence) > 0) {
				single = append(single, group{v, c.Reason, []lab.Result{c}})
				continue
			}
			i := slices.IndexFunc(shared, func(g group) bool { return g.verdict == v && g.reason == c.Reason })
			if i < 0 {
				i = len(shared)
				shared = append(shared, group{verdict: v, reason: c.Reason})
			}
			shared[i].cells = append(shared[i].cells, c)
		}
	}
	return single, shared
}

// where says which cells a group is of: "kernel-floor on ipvs, iptables; nodeport-localhost on ipvs".
func (g group) where(labels map[Column]string) string {
	var scenarios []string
	settings := map[string][]string{}
	for _, c := range g.cells {
		scenarios = appendNew(scenarios, c.Scenario)
		settings[c.Scenario] = append(settings[c.Scenario], labels[columnOf(c.Cell)])
	}
	var out []string
	for _, s := range scenarios {
		out = append(out, s+" on "+list(settings[s], maxCells, ", "))
	}
	return list(out, maxCells, "; ")
}

// claimText is "N1 (vips): text", or as much as is known of it.
func claimText(run *Run, id string) string {
	i := slices.IndexFunc(run.Claims, func(c ClaimResult) bool { return c.ID == id })
	if i < 0 || run.Claims[i].Text == "" {
		return id
	}
	s := id
	if source := run.Claims[i].Source; source != "" {
		s += " (" + source + ")"
	}
	return s + ": " + run.Claims[i].Text
}

// EvidenceOf returns the folder of a cell's evidence, joined to base, and the names within it.
func EvidenceOf(base string, r lab.Result) (folder string, names []string) {
	if len(r.Evidence) == 0 {
		return "", nil
	}
	dir := path.Join(cellsDir, safeName(r.ID()))
	for _, e := range r.Evidence {
		names = append(names, strings.TrimPrefix(e, dir+"/"))
	}
	return filepath.Join(base, dir) + "/", names
}
