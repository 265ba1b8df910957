package results

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kplab/lab"
)

// Difference is one observation of a scenario that does not come out alike in all settings: what someone who changes
// the mode, the kernel or the version will notice.
type Difference struct {
	Scenario string
	Steps    []string // file:line of the assertions, in the order of the lines
	What     string
	Alike    int       // how many more observations of these steps came out just so: [joinAlike]
	Claims   []string  // ids
	Control  bool      // all of the checks are controls
	Outcomes []Outcome // in the order of the matrix's columns; settings that did not look are absent
}

// Outcome is what was observed in one setting.
type Outcome struct {
	Column   Column
	Expected string
	Observed string
	OK       bool
}

// Differences returns the observations that differ between the settings of a run, in the order of the matrix's rows and
// of the scenarios' lines. Cells that erred or were skipped do not count.
//
// A probe is the same probe in two settings if its scenario and its text ([lab.Check.What]) are the same and either its
// line is, or each setting asserts it on a line of its own ("[mode:nftables] expect refused" and below it
// "[!mode:nftables] expect reachable"). Two observations differ if they are not equal, except where the scenario expects
// the same of both, both are as expected, and they begin with the same word: then they differ in detail only (which
// endpoint answered, how many packets).
func Differences(run *Run) []Difference {
	m := NewMatrix(run)
	var out []Difference
	for _, scenario := range m.Scenarios {
		var found []Difference
		for _, p := range alignedProbes(m, scenario) {
			d := p.difference(scenario)
			if d.differs() {
				found = append(found, d)
			}
		}
		out = append(out, collapse(found)...)
	}
	return out
}

// SubstrateDifferences returns the observations that two substrates do not agree on though mode, kernel, version and userland are
// the same, with only those outcomes: each is a finding, or a fault of an env.
func SubstrateDifferences(run *Run) (found []Difference) {
	for _, d := range Differences(run) {
		var outcomes []Outcome
		for _, a := range d.Outcomes {
			if slices.ContainsFunc(d.Outcomes, func(b Outcome) bool { return a.Column.elsewhere(b.Column) && a.differs(b) }) {
				outcomes = append(outcomes, a)
			}
		}
		if d.Outcomes = outcomes; len(outcomes) > 0 {
			found = append(found, d)
		}
	}
	return found
}

// elsewhere reports whether two settings differ in the substrate alone.
func (c Column) elsewhere(d Column) bool {
	other := c.Substrate != d.Substrate
	c.Substrate = d.Substrate
	return other && c == d
}

// sighting is one check of one setting.
type sighting struct {
	column Column
	order  int // the column's place in the matrix
	nth    int // how often this setting had seen the same What on the same line before
	check  lab.Check
}

// probe is the sightings of one observation, at most one of each setting.
type probe []sighting

// alignedProbes finds out which checks of a scenario's cells are the same observation.
func alignedProbes(m *Matrix, scenario string) []probe {
	byWhat := map[string][]sighting{}
	for order, column := range m.Columns {
		cell := m.Cell(scenario, column)
		if cell == nil || !tells(*cell) {
			continue
		}
		seen := map[[2]string]int{}
		for _, c := range cell.Checks {
			k := [2]string{c.What, c.Step}
			byWhat[c.What] = append(byWhat[c.What], sighting{column, order, seen[k], c})
			seen[k]++
		}
	}
	var probes []probe
	for _, sightings := range byWhat {
		probes = append(probes, align(sightings)...)
	}
	slices.SortFunc(probes, func(a, b probe) int {
		return cmp.Or(compareStep(a[0].check.Step, b[0].check.Step), cmp.Compare(a[0].nth, b[0].nth), cmp.Compare(a[0].check.What, b[0].check.What))
	})
	return probes
}

// align splits the sightings of one What into probes: in the order of the lines, a line joins the probe before it until
// a setting would be in it twice.
func align(sightings []sighting) []probe {
	slices.SortStableFunc(sightings, func(a, b sighting) int {
		return cmp.Or(cmp.Compare(a.nth, b.nth), compareStep(a.check.Step, b.check.Step), cmp.Compare(a.order, b.order))
	})
	var probes []probe
	for len(sightings) > 0 {
		line := sightings[0]
		n := 1
		for n < len(sightings) && sightings[n].nth == line.nth && sightings[n].check.Step == line.check.Step {
			n++
		}
		step := probe(sightings[:n:n])
		sightings = sightings[n:]
		if last := len(probes) - 1; last >= 0 && !probes[last].overlaps(step) {
			probes[last] = append(probes[last], step...)
		} else {
			probes = append(probes, step)
		}
	}
	return probes
}

func (p probe) overlaps(q probe) bool {
	return slices.ContainsFunc(p, func(a sighting) bool {
		return slices.ContainsFunc(q, func(b sighting) bool { return a.order == b.order })
	})
}

func (p probe) difference(scenario string) Difference {
	d := Difference{Scenario: scenario, What: p[0].check.What, Control: true}
	for _, s := range p {
		d.Steps = appendNew(d.Steps, s.check.Step)
		d.Control = d.Control && s.check.Control
		if s.check.Claim != "" {
			d.Claims = appendNew(d.Claims, s.check.Claim)
		}
	}
	slices.SortStableFunc(p, func(a, b sighting) int { return cmp.Compare(a.order, b.order) })
	for _, s := range p {
		d.Outcomes = append(d.Outcomes, Outcome{s.column, s.check.Expected, s.check.Observed, s.check.OK})
	}
	return d
}

// differs reports whether some outcomes are unlike others. That a cell's kube-proxy runs in the cell's mode, or in another on the
// way there, is what was asked for and no difference.
func (d Difference) differs() bool {
	if !slices.ContainsFunc(d.Outcomes, func(o Outcome) bool { return !o.OK || !isMode(o.Observed) }) {
		return false
	}
	for i, a := range d.Outcomes {
		for _, b := range d.Outcomes[i+1:] {
			if a.differs(b) {
				return true
			}
		}
	}
	return false
}

func (a Outcome) differs(b Outcome) bool {
	if a.Observed == b.Observed {
		return false
	}
	chance := distribution.MatchString(a.Observed) && distribution.MatchString(b.Observed)
	alike := a.Expected == b.Expected && a.OK && b.OK && (chance || firstWord(a.Observed) == firstWord(b.Observed))
	return !alike
}

func isMode(observed string) bool {
	_, err := lab.ParseMode(strings.TrimPrefix(observed, "mode: "))
	return err == nil
}

// firstWord is the outcome without its details: "reachable" of "reachable by s1". A number is a detail.
func firstWord(s string) string {
	word := s
	if i := strings.IndexAny(s, " ,:;(=\n"); i >= 0 {
		word = s[:i]
	}
	if _, err := strconv.ParseFloat(word, 64); err == nil {
		return ""
	}
	return word
}

// collapse joins differences of the same probe that came out the same way at several places.
func collapse(all []Difference) []Difference {
	var out []Difference
	for _, d := range all {
		i := slices.IndexFunc(out, func(o Difference) bool { return o.What == d.What && o.alike(d) })
		if i < 0 {
			out = append(out, d)
			continue
		}
		for _, s := range d.Steps {
			out[i].Steps = appendNew(out[i].Steps, s)
		}
		for _, c := range d.Claims {
			out[i].Claims = appendNew(out[i].Claims, c)
		}
	}
	return out
}

// alike reports whether two observations came out the same way in the same settings.
func (d Difference) alike(o Difference) bool {
	return d.Control == o.Control && slices.EqualFunc(d.Outcomes, o.Outcomes, func(a, b Outcome) bool {
		return a.Column == b.Column && a.Observed == b.Observed
	})
}

// joinAlike leaves one of the observations that the same steps made and that came out alike, as most probes do that a step makes from
// several clients, in both families: for a person to read.
func joinAlike(all []Difference) []Difference {
	var out []Difference
	for _, d := range all {
		i := slices.IndexFunc(out, func(o Difference) bool {
			return o.Scenario == d.Scenario && slices.Equal(o.Steps, d.Steps) && o.alike(d)
		})
		if i < 0 {
			out = append(out, d)
			continue
		}
		out[i].Alike++
	}
	return out
}

// note says what the text of a difference leaves out.
func (d Difference) note() string {
	s := ""
	if d.Alike > 0 {
		s = fmt.Sprintf(" and %d more", d.Alike)
	}
	if d.Control {
		s += " (control)"
	}
	return s
}

// compareStep orders "a.txtar:9" before "a.txtar:12".
func compareStep(a, b string) int { return compareNatural(a, b) }

// Where is "nodeport.txtar:12,14", or for an instance of a scenario with parameters "mode-switch.ipvs.restart: mode-switch.txtar:12".
func (d Difference) Where() string {
	file := ""
	var b strings.Builder
	if strings.Contains(d.Scenario, ".") {
		b.WriteString(d.Scenario + ": ")
	}
	for i, s := range d.Steps {
		colon := strings.LastIndex(s, ":")
		switch {
		case i > 0 && colon >= 0 && s[:colon] == file:
			b.WriteString("," + s[colon+1:])
		case i > 0:
			b.WriteString(", " + s)
		default:
			b.WriteString(s)
		}
		if colon >= 0 {
			file = s[:colon]
		}
	}
	return b.String()
}

// Caveat says that the modes did not run on the same kernels or versions, if so: then a difference need not be the mode's.
func Caveat(columns []Column) string {
	var what []string
	if !sameForEachMode(columns, Column.KernelName) {
		what = append(what, "kernel")
	}
	if !sameForEachMode(columns, func(c Column) string { return c.KubeProxy }) {
		what = append(what, "kube-proxy version")
	}
	if len(what) == 0 {
		return ""
	}
	return "The modes did not all run on the same " + strings.Join(what, " and ") + ": a difference need not come from the mode."
}

func sameForEachMode(columns []Column, value func(Column) string) bool {
	of := map[lab.Mode][]string{}
	for _, c := range columns {
		of[c.Mode] = appendNew(of[c.Mode], value(c))
	}
	var first []string
	for _, values := range of {
		slices.Sort(values)
		if first == nil {
			first = values
		}
		if !slices.Equal(first, values) {
			return false
		}
	}
	return true
}
