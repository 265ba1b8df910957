package results

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"kplab/lab"
	"kplab/results/figures"
)

// ComparisonSchema is the version of [Comparison] as JSON, which schema/compare.schema.json describes. The rules are those of [Schema].
const ComparisonSchema = 1

// Comparison is what changed from one folder of results to another: the content of `kplab compare --format json`.
//
// Cells are matched by scenario, and by mode, substrate, kernel, kube-proxy and userland as far as the two have those in common; where
// each has just one and they differ, that is what is compared ([Subject]). Figures are matched in the same way by their names, units
// and settings.
type Comparison struct {
	Schema   int       `json:"schema"`
	A        Compared  `json:"a"`
	B        Compared  `json:"b"`
	Subjects []Subject `json:"subjects"`
	// Cells is how many were compared; OnlyA and OnlyB are the ids of those that have no counterpart.
	Cells    int             `json:"cells"`
	OnlyA    []string        `json:"onlyA"`
	OnlyB    []string        `json:"onlyB"`
	Verdicts []VerdictChange `json:"verdicts"`
	Checks   []CheckMoved    `json:"checks"`
	Claims   []ClaimChange   `json:"claims"`
	// Compared figures, and those that changed beyond noise.
	FiguresCompared int            `json:"figuresCompared"`
	Figures         []FigureChange `json:"figures"`
	// Notes say what could not be compared, and why.
	Notes []string `json:"notes"`
	// Regressions counts the cells that passed and now fail or err, and the figures that are significantly worse.
	Regressions int `json:"regressions"`
}

// Compared is one of the two folders.
type Compared struct {
	Dir     string    `json:"dir"`
	ID      string    `json:"id,omitempty"` // of its run
	Started time.Time `json:"started,omitzero"`
	KPLab   string    `json:"kplab,omitempty"`
}

// VerdictChange is a cell whose verdict changed.
type VerdictChange struct {
	Scenario   string      `json:"scenario"`
	Setting    string      `json:"setting"` // what both have in common: "nftables / netns / host / 1.37.2"
	A          lab.Verdict `json:"a"`
	B          lab.Verdict `json:"b"`
	Reason     string      `json:"reason,omitempty"` // of B
	Repro      string      `json:"repro"`            // of B
	Regression bool        `json:"regression"`       // pass became fail or error
}

// CheckMoved is a check that came out differently in cells that both ran to their end.
type CheckMoved struct {
	Scenario string `json:"scenario"`
	Setting  string `json:"setting"`
	Step     string `json:"step"` // of B; of A where B has none
	What     string `json:"what"`
	Claim    string `json:"claim,omitempty"`
	// Observed, "" where the check was not made.
	A string `json:"a"`
	B string `json:"b"`
	// Whether it was as asserted; true where the check was not made.
	OKA bool `json:"okA"`
	OKB bool `json:"okB"`
}

// ClaimChange is a claim on which the two runs' ledgers do not agree, where both have tested it.
type ClaimChange struct {
	ID   string       `json:"id"`
	Text string       `json:"text"`
	A    ClaimVerdict `json:"a"`
	B    ClaimVerdict `json:"b"`
	Note string       `json:"note,omitempty"` // of B
}

// FigureChange is a figure that changed beyond noise.
type FigureChange struct {
	Name    string  `json:"name"`
	Setting string  `json:"setting"`
	Unit    string  `json:"unit"`
	A       float64 `json:"a"` // medians
	B       float64 `json:"b"`
	Change  float64 `json:"change"` // B/A - 1; 0 where A is 0
	P       float64 `json:"p"`      // of the Mann-Whitney U test
	NA      int     `json:"nA"`     // runs
	NB      int     `json:"nB"`
	Worse   bool    `json:"worse"`
}

// Half is one side of a comparison: a run, figures or both.
type Half struct {
	Dir     string
	Run     *Run         // nil for none
	Figures *figures.Set // nil for none
}

// CompareOptions say what counts as a change.
type CompareOptions struct {
	// MinChange is how much a median must change at least, as a share of A's: what is significant need not matter, and of a hundred
	// figures at alpha 0.05 some are significant by chance. 0 leaves it to the test alone.
	MinChange float64
}

// ErrNothingInCommon is wrapped by the error of [Compare] for two folders of which nothing can be compared.
var ErrNothingInCommon = errors.New("have nothing in common to compare")

// Compare says what changed from a to b. Two folders without anything to compare are [ErrNothingInCommon].
func Compare(a, b Half, o CompareOptions) (*Comparison, error) {
	c := &Comparison{
		Schema: ComparisonSchema, A: comparedOf(a), B: comparedOf(b), Subjects: []Subject{}, OnlyA: []string{}, OnlyB: []string{},
		Verdicts: []VerdictChange{}, Checks: []CheckMoved{}, Claims: []ClaimChange{}, Figures: []FigureChange{}, Notes: []string{},
	}
	if a.Run != nil && b.Run != nil {
		c.cells(a.Run, b.Run)
		c.claims(a.Run, b.Run)
	}
	if a.Figures != nil && b.Figures != nil {
		c.figures(a.Figures, b.Figures, o)
	}
	for _, v := range c.Verdicts {
		if v.Regression {
			c.Regressions++
		}
	}
	for _, f := range c.Figures {
		if f.Worse {
			c.Regressions++
		}
	}
	if c.Cells == 0 && c.FiguresCompared == 0 {
		why := "no cell and no figure of the one has a counterpart in the other"
		if len(c.Notes) > 0 {
			why = strings.Join(c.Notes, "; ")
		}
		return nil, fmt.Errorf("%s and %s %w: %s", a.Dir, b.Dir, ErrNothingInCommon, why)
	}
	return c, nil
}

// ExitStatus is 1 if something regressed.
func (c *Comparison) ExitStatus() int {
	if c.Regressions > 0 {
		return ExitFail
	}
	return ExitOK
}

func comparedOf(h Half) Compared {
	c := Compared{Dir: h.Dir}
	if h.Run != nil {
		c.ID, c.Started, c.KPLab = h.Run.ID, h.Run.Started, h.Run.Host.KPLab
	}
	return c
}

// subject adds a subject, once, with all places where it holds.
func (c *Comparison) subject(s Subject) {
	if s.A == s.B {
		return
	}
	for i, have := range c.Subjects {
		if have.What == s.What && have.A == s.A && have.B == s.B {
			if s.Where != "" && !slices.Contains(strings.Split(have.Where, "; "), s.Where) {
				c.Subjects[i].Where = have.Where + "; " + s.Where
			}
			return
		}
	}
	c.Subjects = append(c.Subjects, s)
}

func (c *Comparison) cells(a, b *Run) {
	m := matcher[lab.Result]{key: func(r lab.Result) string { return r.Scenario }}
	m.match(a.Cells, b.Cells, []attribute[lab.Result]{
		{"mode", func(r lab.Result) string { return string(r.Mode) }},
		{"substrate", func(r lab.Result) string { return r.Substrate }},
		{"kernel", func(r lab.Result) string { return r.Kernel.Name }},
		{"kube-proxy", func(r lab.Result) string { return r.KubeProxy }},
		{"userland", func(r lab.Result) string { return r.Userland.Name }},
	}, nil)
	c.Notes = append(c.Notes, m.notes...)
	for _, s := range m.subjects {
		c.subject(s)
	}
	for _, r := range m.onlyA {
		c.OnlyA = append(c.OnlyA, r.Once().ID())
	}
	for _, r := range m.onlyB {
		c.OnlyB = append(c.OnlyB, r.Once().ID())
	}
	c.Cells = len(m.pairs)
	for _, p := range m.pairs {
		c.machines(a, b, p)
		if p.a.Verdict != p.b.Verdict {
			c.Verdicts = append(c.Verdicts, VerdictChange{
				Scenario: p.a.Scenario, Setting: p.label, A: p.a.Verdict, B: p.b.Verdict, Reason: p.b.Reason, Repro: p.b.Repro,
				Regression: p.a.Verdict == lab.Pass && (p.b.Verdict == lab.Fail || p.b.Verdict == lab.Error),
			})
		}
		if tells(p.a) && tells(p.b) {
			c.checks(p)
		}
	}
	c.subject(Subject{What: "kplab", A: a.Host.KPLab, B: b.Host.KPLab})
	slices.SortStableFunc(c.Verdicts, func(x, y VerdictChange) int { return boolRank(y.Regression) - boolRank(x.Regression) })
}

func boolRank(b bool) int {
	if b {
		return 1
	}
	return 0
}

// machines notes in what the machines differ that a pair ran on.
func (c *Comparison) machines(a, b *Run, p pair[lab.Result]) {
	if p.a.Kernel.Name == p.b.Kernel.Name && p.a.Kernel.Release != "" && p.b.Kernel.Release != "" {
		c.subject(Subject{What: "kernel release", A: p.a.Kernel.Release, B: p.b.Kernel.Release, Where: p.a.Kernel.Name})
		c.subject(Subject{What: "accelerator", A: p.a.Kernel.Accelerator, B: p.b.Kernel.Accelerator, Where: p.a.Kernel.Name})
	}
	ma, mb := machineOf(a, p.a), machineOf(b, p.b)
	if ma == nil || mb == nil {
		return
	}
	for _, tool := range slices.Sorted(maps.Keys(ma.Tools)) {
		if other := mb.Tools[tool]; other != "" && ma.Tools[tool] != "" {
			c.subject(Subject{What: tool, A: ma.Tools[tool], B: other})
		}
	}
	c.subject(Subject{What: "CPU", A: ma.CPU, B: mb.CPU})
}

// machineOf is the machine that ran a cell, nil if it is not known.
func machineOf(run *Run, r lab.Result) *Machine {
	i := slices.IndexFunc(run.Machines, func(m Machine) bool {
		return m.Kernel == r.Kernel.Name && m.Userland == r.Userland.Name && m.Substrate == r.Substrate && (r.Kernel.Release == "" || m.Release == r.Kernel.Release)
	})
	if i < 0 {
		return nil
	}
	return &run.Machines[i]
}

// checks notes the checks of a pair that came out differently. Line numbers may have moved: checks are aligned as [Differences] aligns
// those of two settings. What is chance, such as which endpoint answered, is no change.
func (c *Comparison) checks(p pair[lab.Result]) {
	byWhat := map[string][]sighting{}
	for order, r := range []lab.Result{p.a, p.b} {
		seen := map[[2]string]int{}
		for _, k := range r.Checks {
			at := [2]string{k.What, k.Step}
			byWhat[k.What] = append(byWhat[k.What], sighting{columnOf(r.Cell), order, seen[at], k})
			seen[at]++
		}
	}
	var moved []CheckMoved
	for what, sightings := range byWhat {
		for _, probe := range align(sightings) {
			v := CheckMoved{Scenario: p.a.Scenario, Setting: p.label, What: what, OKA: true, OKB: true}
			var made [2]*lab.Check
			for _, s := range probe {
				k := s.check
				made[s.order] = &k
				v.Step, v.Claim = k.Step, cmp.Or(k.Claim, v.Claim)
			}
			a, b := made[0], made[1]
			if a != nil && b != nil {
				oa, ob := Outcome{Expected: a.Expected, Observed: a.Observed, OK: a.OK}, Outcome{Expected: b.Expected, Observed: b.Observed, OK: b.OK}
				if a.OK == b.OK && (!oa.differs(ob) || outcomeWord(*a) == outcomeWord(*b)) {
					continue
				}
			}
			if a != nil {
				v.A, v.OKA = a.Observed, a.OK
			}
			if b != nil {
				v.B, v.OKB, v.Step = b.Observed, b.OK, b.Step
			}
			moved = append(moved, v)
		}
	}
	slices.SortFunc(moved, func(x, y CheckMoved) int { return cmp.Or(compareStep(x.Step, y.Step), cmp.Compare(x.What, y.What)) })
	c.Checks = append(c.Checks, moved...)
}

func (c *Comparison) claims(a, b *Run) {
	for _, y := range b.Claims {
		i := slices.IndexFunc(a.Claims, func(x ClaimResult) bool { return x.ID == y.ID })
		if i < 0 || a.Claims[i].Verdict == y.Verdict || a.Claims[i].Verdict == Untested || y.Verdict == Untested {
			continue
		}
		c.Claims = append(c.Claims, ClaimChange{y.ID, y.Text, a.Claims[i].Verdict, y.Verdict, y.Note})
	}
}

// figures compares two sets. Those of different accelerators or CPUs are not compared: their difference is the machine's.
func (c *Comparison) figures(a, b *figures.Set, o CompareOptions) {
	m := matcher[figures.Group]{key: func(g figures.Group) string { return g.Name + " " + g.Unit }}
	var attributes []attribute[figures.Group]
	for _, k := range append(figures.SettingKeys(), figures.KubeProxyKey) {
		attributes = append(attributes, attribute[figures.Group]{k, func(g figures.Group) string { return g.Config[k] }})
	}
	m.match(a.Groups(), b.Groups(), attributes, nil)
	for _, side := range []struct {
		name string
		set  *figures.Set
	}{{"A", a}, {"B", b}} {
		for _, missing := range side.set.Missing {
			c.Notes = append(c.Notes, side.name+" lacks figures: "+brief(missing))
		}
	}
	for _, n := range m.notes {
		c.Notes = append(c.Notes, "figures: "+n)
	}
	incomparable := false
	for _, s := range m.subjects {
		c.subject(s)
		if s.What == "accelerator" || s.What == "cpu" {
			incomparable = true
			c.Notes = append(c.Notes, fmt.Sprintf("figures are not compared: the %s differs (%s, %s), and a difference would be the machine's", s.What, s.A, s.B))
		}
	}
	if incomparable {
		return
	}
	few := 0
	for _, p := range m.pairs {
		c.FiguresCompared++
		test := figures.Compare(p.a.Values, p.b.Values)
		if test.Warning != nil && min(len(p.a.Values), len(p.b.Values)) < fewestRuns {
			few++
		}
		sa, sb := figures.Summarize(p.a.Values), figures.Summarize(p.b.Values)
		change := 0.0
		if sa.Median != 0 {
			change = sb.Median/sa.Median - 1
		}
		if !test.Significant || sa.Median == sb.Median || sa.Median != 0 && math.Abs(change) < o.MinChange {
			continue
		}
		c.Figures = append(c.Figures, FigureChange{
			Name: p.a.Name, Setting: p.label, Unit: p.a.Unit, A: sa.Median, B: sb.Median, Change: change, P: test.P,
			NA: sa.N, NB: sb.N, Worse: (sb.Median-sa.Median)*float64(b.Better(p.a.Unit)) < 0,
		})
	}
	if few > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("%d of %d figures have fewer than %d runs on a side: no change of them can be told from noise", few, len(m.pairs), fewestRuns))
	}
	for _, g := range m.onlyA {
		c.OnlyA = append(c.OnlyA, g.Name+" "+g.Unit)
	}
	for _, g := range m.onlyB {
		c.OnlyB = append(c.OnlyB, g.Name+" "+g.Unit)
	}
	slices.SortStableFunc(c.Figures, func(x, y FigureChange) int { return boolRank(y.Worse) - boolRank(x.Worse) })
}

// fewestRuns is how many runs each side must have so that the test can find a difference at alpha 0.05.
const fewestRuns = 4
