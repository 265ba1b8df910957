package results

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"kplab/lab"
)

// BookSchema is the version of [Book] as JSON. The rules are those of [Schema].
const BookSchema = 1

// Book is the ledger of several runs with what a reader needs to look up and to check each line of it: the content of
// `kplab ledger --format json`.
type Book struct {
	Schema int       `json:"schema"`
	Runs   []BookRun `json:"runs"`
	Claims []BookRow `json:"claims"` // in the order of the catalogue, then those that only checks name
}

// BookRun is a run that a book is made of.
type BookRun struct {
	ID      string    `json:"id"`
	Dir     string    `json:"dir"` // as it was named
	Started time.Time `json:"started"`
	KPLab   string    `json:"kplab"` // version
}

// BookRow is one claim.
type BookRow struct {
	ClaimResult
	// Really says, for a contradicted claim, what is really so, one way of being wrong each, and where it was seen.
	Really []string `json:"really,omitempty"`
	// Why says why an untested claim is.
	Why         string   `json:"why,omitempty"`
	Scenarios   []string `json:"scenarios"` // that bear on it
	Modes       []string `json:"modes"`     // it was tested in
	Kernels     []string `json:"kernels"`   // it was tested on: "debian-12 6.1.0-57-cloud-amd64 tcg"
	KubeProxies []string `json:"kubeProxies"`
	Userlands   []string `json:"userlands"`
	Substrates  []string `json:"substrates"`
	// Evidence is the folders of the cells that tested it; of a contradicted claim, of those that contradict it.
	Evidence []string `json:"evidence"`
}

// Catalogue is what is known of the claims before any run.
type Catalogue struct {
	Claims []lab.Claim
	// Scenarios names the scenarios that bear on a claim, by its id.
	Scenarios map[string][]string
}

// NewBook makes the book of runs. Claims that the catalogue lacks take their source and text from the first run that has them.
// Verdicts are those of [Ledger] over all runs: what contradicts a claim once contradicts it.
func NewBook(catalogue Catalogue, runs ...*Run) *Book {
	b := &Book{Schema: BookSchema, Runs: []BookRun{}, Claims: []BookRow{}}
	claims := slices.Clone(catalogue.Claims)
	for _, run := range runs {
		b.Runs = append(b.Runs, BookRun{ID: run.ID, Dir: run.Dir, Started: run.Started, KPLab: run.Host.KPLab})
		for _, c := range run.Claims {
			if !slices.ContainsFunc(claims, func(have lab.Claim) bool { return have.ID == c.ID }) && c.Text != "" {
				claims = append(claims, c.Claim)
			}
		}
	}
	for _, e := range newLedger(claims, runs...) {
		row := BookRow{ClaimResult: e.result(), Scenarios: orEmpty(catalogue.Scenarios[e.claim.ID])}
		s := settingOf(e.tests)
		row.Modes, row.Kernels, row.KubeProxies = orEmpty(s.modes), orEmpty(s.kernels), orEmpty(s.versions)
		row.Userlands, row.Substrates = orEmpty(s.userlands), orEmpty(s.substrates)
		row.Evidence = evidencePaths(e.tests)
		switch row.Verdict {
		case Contradicted:
			row.Really = e.really()
			row.Evidence = []string{}
			for _, c := range e.contradictions {
				for _, path := range evidencePaths(c.tests) {
					row.Evidence = appendNew(row.Evidence, path)
				}
			}
		case Untested:
			row.Why = why(row, runs)
		}
		b.Claims = append(b.Claims, row)
	}
	return b
}

// Results are the book's lines as [Ledger] has them.
func (b *Book) Results() []ClaimResult {
	var all []ClaimResult
	for _, row := range b.Claims {
		all = append(all, row.ClaimResult)
	}
	return all
}

// really says what is so: in the catalogue's words if a scenario asserts that the claim is wrong, else in the scenarios', and
// every deviation as it was seen.
func (e *entry) really() (out []string) {
	var asserted []*test
	for _, c := range e.contradictions {
		switch {
		case !c.asserted:
			out = append(out, fmt.Sprintf("%s [%s]", c.what, settingOf(c.tests)))
		case e.claim.Reality == "":
			out = append(out, fmt.Sprintf("%s [%s]", c.what, settingOf(c.tests)))
		default:
			for _, t := range c.tests {
				asserted = appendNew(asserted, t)
			}
		}
	}
	if len(asserted) > 0 {
		out = slices.Insert(out, 0, fmt.Sprintf("%s [%s]", oneLine(e.claim.Reality), settingOf(asserted)))
	}
	return out
}

// setting is what tests have run in, all together.
type setting struct{ modes, kernels, versions, userlands, substrates []string }

func settingOf(tests []*test) (s setting) {
	for _, t := range tests {
		c := columnOf(t.cell.Cell)
		s.modes = appendNew(s.modes, string(c.Mode))
		s.kernels = appendNew(s.kernels, c.KernelName())
		s.versions = appendNew(s.versions, c.KubeProxy)
		s.userlands = appendNew(s.userlands, c.Userland)
		s.substrates = appendNew(s.substrates, c.Substrate)
	}
	slices.SortFunc(s.modes, func(a, b string) int { return modeRank(lab.Mode(a)) - modeRank(lab.Mode(b)) })
	slices.SortFunc(s.versions, compareNatural)
	return s
}

// String is "ipvs, nftables; debian-12 6.1.0-57-cloud-amd64 tcg; 1.37.2", with userlands and substrates where they are not only the default.
func (s setting) String() string {
	parts := []string{strings.Join(s.modes, ", "), strings.Join(s.kernels, ", "), strings.Join(s.versions, ", ")}
	if !slices.Equal(s.userlands, []string{lab.DefaultUserland}) {
		parts = append(parts, "userland "+strings.Join(s.userlands, ", "))
	}
	if !slices.Equal(s.substrates, []string{lab.DefaultSubstrate}) {
		parts = append(parts, strings.Join(s.substrates, ", "))
	}
	return strings.Join(parts, "; ")
}

func evidencePaths(tests []*test) []string {
	paths := []string{}
	for _, t := range tests {
		if folder, _ := EvidenceOf(t.dir, t.cell); folder != "" {
			paths = appendNew(paths, folder)
		}
	}
	return paths
}

// why says why the runs have not tested a claim.
func why(row BookRow, runs []*Run) string {
	switch {
	case len(row.Scenarios) == 0 && row.Claim.Untested != "":
		return oneLine(row.Claim.Untested)
	case len(row.Scenarios) == 0:
		return "no scenario bears on it"
	}
	var reasons []string
	ran := false
	for _, run := range runs {
		for _, cell := range run.Cells {
			if !slices.Contains(row.Scenarios, cell.Scenario) {
				continue
			}
			if ran = true; !tells(cell) {
				reasons = appendNew(reasons, fmt.Sprintf("%s: %s: %s", cell.Scenario, cell.Verdict, brief(cell.Reason)))
			}
		}
	}
	switch {
	case !ran:
		return "not in these runs: " + strings.Join(row.Scenarios, ", ")
	case len(reasons) == 0:
		return strings.Join(row.Scenarios, ", ") + ": asserts nothing of it in the settings of these runs"
	}
	return list(reasons, maxContradictions, "; ")
}
