package results

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"kplab/lab"
)

const (
	SwitchTitle  = "What a change of mode does to a live node"
	SwitchCaveat = "From a mode, in a way, to a mode. Each traffic by its name in the scenario: for how many ms attempts failed, from the start of the first that did to the start of " +
		"the first that succeeded after the last failure. Left over is what the node has beyond one that was in the new mode from the start."
)

// The parameters by which a scenario says that it changes a node's mode.
const (
	switchFrom = "from" // the mode before
	switchBy   = "by"   // the way
)

// SwitchGrid is the changes of mode of one scenario: a row for each mode and way that they begin with, a column for each setting that
// they end in.
type SwitchGrid struct {
	Scenario string   // without its parameters
	Columns  []Column // Mode is the one after
	Rows     []SwitchRow
	Legend   []string // what each traffic is: "out: ext n1:nodeport/web (new TCP connections)"
	names    []string // of the traffics, and of connections that may survive, in the order in which they were looked at
	labels   map[Column]string
}

// SwitchRow is the changes from one mode in one way.
type SwitchRow struct {
	From  lab.Mode
	By    string
	Cells []*Switch // beside the grid's columns, nil where there was none
}

// Name is "from ipvs by restart".
func (r SwitchRow) Name() string { return fmt.Sprintf("from %s by %s", r.From, r.By) }

// Switch is one change of mode.
type Switch struct {
	lab.Result
	// Gaps are what each traffic met, Moved names those UDP flows that then went to another endpoint than before.
	Gaps  []lab.Gap
	Moved []string
	After *lab.State // the last look at the node, nil where none was taken
}

// SwitchGrids returns the changes of mode in a run, by scenario. They are known by the parameters from (a mode) and by (a way). Cells of
// runs that have not recorded parameters are in none.
func SwitchGrids(run *Run) []*SwitchGrid {
	columns, home := columnsOf(run)
	labels := shortLabelsOf(run)
	var grids []*SwitchGrid
	for i := range run.Cells {
		cell := &run.Cells[i]
		from, by, ok := change(cell.Cell)
		if !ok {
			continue
		}
		name := strings.TrimSuffix(cell.Scenario, "."+string(from)+"."+by)
		g := find(&grids, func(g *SwitchGrid) bool { return g.Scenario == name }, func() *SwitchGrid { return &SwitchGrid{Scenario: name, labels: labels} })
		column := home[columnOf(cell.Cell)]
		g.Columns = appendNew(g.Columns, column)
		g.add(from, by, column, switchOf(cell))
	}
	for _, g := range grids {
		g.arrange(columns)
	}
	return grids
}

// change is the mode that a cell changes from, and the way, if that is what it does.
func change(c lab.Cell) (from lab.Mode, by string, ok bool) {
	from, by = lab.Mode(c.Parameters[switchFrom]), c.Parameters[switchBy]
	return from, by, by != "" && slices.Contains(lab.Modes(), from)
}

// find returns the first that fits, or a new one.
func find[T any](all *[]T, fits func(T) bool, make func() T) T {
	if i := slices.IndexFunc(*all, fits); i >= 0 {
		return (*all)[i]
	}
	*all = append(*all, make())
	return (*all)[len(*all)-1]
}

// add puts a change into its row, for the time being beside the columns in the order in which they came.
func (g *SwitchGrid) add(from lab.Mode, by string, column Column, s *Switch) {
	i := slices.IndexFunc(g.Rows, func(r SwitchRow) bool { return r.From == from && r.By == by })
	if i < 0 {
		i = len(g.Rows)
		g.Rows = append(g.Rows, SwitchRow{From: from, By: by})
	}
	at := slices.Index(g.Columns, column)
	for len(g.Rows[i].Cells) <= at {
		g.Rows[i].Cells = append(g.Rows[i].Cells, nil)
	}
	g.Rows[i].Cells[at] = s
	for _, x := range s.Gaps {
		g.names = appendNew(g.names, x.Name)
		g.Legend = appendNew(g.Legend, fmt.Sprintf("%s: %s (%s)", x.Name, x.Traffic, gapKind(x)))
	}
	for _, x := range s.Survivors {
		g.names = appendNew(g.names, x.Name)
		g.Legend = appendNew(g.Legend, fmt.Sprintf("%s: %s, how many are alive", x.Name, survivorKind(x)))
	}
}

// arrange puts columns in the order of the matrix and rows in that of the modes.
func (g *SwitchGrid) arrange(columns []Column) {
	came := g.Columns
	g.Columns = slices.SortedFunc(slices.Values(came), func(a, b Column) int { return slices.Index(columns, a) - slices.Index(columns, b) })
	var ways []string
	for i := range g.Rows {
		row := &g.Rows[i]
		ways = appendNew(ways, row.By)
		cells := make([]*Switch, len(g.Columns))
		for at, s := range row.Cells {
			cells[slices.Index(g.Columns, came[at])] = s
		}
		row.Cells = cells
	}
	slices.SortStableFunc(g.Rows, func(a, b SwitchRow) int {
		return cmp.Or(cmp.Compare(modeRank(a.From), modeRank(b.From)), cmp.Compare(slices.Index(ways, a.By), slices.Index(ways, b.By)))
	})
}

// Heads names the columns: "to nftables", or "to nftables (host 6.18.5)" where there are several.
func (g *SwitchGrid) Heads() []string {
	heads := make([]string, len(g.Columns))
	for i, c := range g.Columns {
		heads[i] = "to " + g.labels[c]
	}
	return heads
}

func switchOf(cell *lab.Result) *Switch {
	s := &Switch{Result: *cell}
	before := map[string]map[string]int{} // endpoints of each UDP flow
	for _, x := range cell.Gaps {
		if x.During == lab.BeforeAnyChange {
			before[x.Name] = x.Endpoints
			continue
		}
		s.Gaps = append(s.Gaps, x)
		seen := maps.Clone(x.Endpoints)
		for endpoint := range before[x.Name] {
			if seen == nil {
				seen = map[string]int{}
			}
			seen[endpoint]++
		}
		if len(seen) > 1 {
			s.Moved = append(s.Moved, x.Name)
		}
	}
	if n := len(cell.States); n > 0 {
		s.After = &cell.States[n-1]
	}
	return s
}

// gapKind says what a gap's attempts are.
func gapKind(g lab.Gap) string {
	switch g.Kind {
	case lab.UDPRequests:
		return "UDP requests and their answers"
	case lab.UDPOneWay:
		return "one-way UDP, as received"
	}
	return "new TCP connections"
}

// survivorKind says what connections are.
func survivorKind(x lab.Survivors) string {
	const before = "TCP connections that were there before, "
	switch x.Traffic {
	case lab.Requests:
		return before + "over which requests go"
	case lab.Push:
		return before + "over which the endpoint sends"
	}
	return before + "idle"
}

// Figure is a traffic or what survived in a few columns: "640", "0", "down", "9/12"; "-" where it was not looked at.
func (s *Switch) Figure(name string) string {
	for _, x := range s.Gaps {
		switch {
		case x.Name != name:
		case x.Open:
			return "down"
		default:
			return fmt.Sprintf("%.0f", x.Ms)
		}
	}
	for _, x := range s.Survivors {
		if x.Name == name {
			return fmt.Sprintf("%d/%d", x.Outcomes["alive"], x.Connections)
		}
	}
	return "-"
}

// Traffic says in words what each traffic met, in the order of the looks: "out: 640 ms, 32 of 63 (32 refused)", "kept: 9 of 12 alive, 3
// reset".
func (s *Switch) Traffic() (lines []string) {
	for _, x := range s.Gaps {
		line := x.Name + ": " + gapText(x)
		if slices.Contains(s.Moved, x.Name) {
			line += moved
		}
		lines = append(lines, line)
	}
	for _, x := range s.Survivors {
		line := fmt.Sprintf("%s: %d of %d alive", x.Name, x.Outcomes["alive"], x.Connections)
		for _, outcome := range slices.Sorted(maps.Keys(x.Outcomes)) {
			if outcome != "alive" {
				line += fmt.Sprintf(", %d %s", x.Outcomes[outcome], outcome)
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// Failures says in words what of the traffic failed: "out: 25 of 65 (25 refused)", "kept: 3 of 12 reset". What went well is left out.
func (s *Switch) Failures() (all []string) {
	for _, x := range s.Gaps {
		if x.Failed > 0 {
			text := fmt.Sprintf("%s: %d of %d (%s)", x.Name, x.Failed, x.Attempts, failures(x))
			if slices.Contains(s.Moved, x.Name) {
				text += moved
			}
			all = append(all, text)
		} else if slices.Contains(s.Moved, x.Name) {
			all = append(all, x.Name+": none"+moved)
		}
	}
	for _, x := range s.Survivors {
		for _, outcome := range slices.Sorted(maps.Keys(x.Outcomes)) {
			if outcome != "alive" {
				all = append(all, fmt.Sprintf("%s: %d of %d %s", x.Name, x.Outcomes[outcome], x.Connections, outcome))
			}
		}
	}
	return all
}

// moved is said of a UDP flow that went to another endpoint than before.
const moved = ", went to another endpoint"

// Left says what is left over of the mode before, by kind: "17 ipsets", "iptables filter: 1 chain and 3 rules", "net.ipv4.vs.conntrack = 1 (else 0)"; known
// is false where nobody has looked.
func (s *Switch) Left() (kinds []string, known bool) {
	if s.After == nil || s.After.Leftovers == nil {
		return nil, false
	}
	h := s.After.Leftovers.Holds
	for _, k := range []struct {
		n         *int
		one, many string
	}{
		{h.VirtualServers, "virtual server", "virtual servers"},
		{h.RealServers, "real server", "real servers"},
		{h.KubeIPVS0Addresses, "kube-ipvs0 address", "kube-ipvs0 addresses"},
		{h.IPSets, "ipset", "ipsets"},
		{h.NFTTables, "nft table", "nft tables"},
	} {
		if k.n != nil && *k.n > 0 {
			kinds = append(kinds, number(*k.n, k.one, k.many))
		}
	}
	for _, f := range []struct {
		tool   string
		tables map[string]lab.TableCount
	}{{"iptables", h.IPTables}, {"ip6tables", h.IP6Tables}} {
		for _, table := range slices.Sorted(maps.Keys(f.tables)) {
			c := f.tables[table]
			kinds = append(kinds, fmt.Sprintf("%s %s: %s and %s", f.tool, table, number(c.Chains, "chain", "chains"), number(c.Rules, "rule", "rules")))
		}
	}
	for _, k := range s.After.Leftovers.Sysctls {
		kinds = append(kinds, fmt.Sprintf("%s = %s (else %s)", k.Key, k.Value, cmp.Or(k.Other, "absent")))
	}
	return kinds, true
}

// Foreign names what was planted before the change, by whether it is still there: "ipset FOREIGN".
func (s *Switch) Foreign() (kept, lost []string) {
	if s.After == nil {
		return nil, nil
	}
	for _, f := range s.After.Foreign {
		name := f.Kind + " " + f.Name
		if f.Kept {
			kept = append(kept, name)
		} else {
			lost = append(lost, name)
		}
	}
	return kept, lost
}

// What the lines of [Switch.Remains] begin with, in their order.
var remains = []string{"left over: ", "foreign state kept: ", "foreign state lost: "}

// Remains says in words what is left over and what became of foreign state: "left over: nothing", "foreign state lost: ...".
func (s *Switch) Remains() (lines []string) {
	if left, known := s.Left(); known {
		text := "nothing"
		if len(left) > 0 {
			text = strings.Join(left, ", ")
		}
		lines = append(lines, remains[0]+text)
	}
	kept, lost := s.Foreign()
	if len(kept) > 0 {
		lines = append(lines, remains[1]+strings.Join(kept, ", "))
	}
	if len(lost) > 0 {
		lines = append(lines, remains[2]+strings.Join(lost, ", "))
	}
	return lines
}

// Remainder is what several changes left alike.
type Remainder struct {
	Text  string
	Where []string // "from ipvs to nftables by restart, crash"
}

// Remainders lists what changes left over and what foreign state they kept and lost, those that came out alike together.
func (g *SwitchGrid) Remainders() (all []Remainder) {
	at := map[string][]gridField{}
	for _, row := range g.Rows {
		for i, s := range row.Cells {
			if s == nil {
				continue
			}
			for _, text := range s.Remains() {
				if at[text] == nil {
					all = append(all, Remainder{Text: text})
				}
				at[text] = append(at[text], gridField{row.From, row.By, i})
			}
		}
	}
	for i := range all {
		all[i].Where = g.where(at[all[i].Text])
	}
	kind := func(r Remainder) int {
		return slices.IndexFunc(remains, func(begin string) bool { return strings.HasPrefix(r.Text, begin) })
	}
	slices.SortStableFunc(all, func(a, b Remainder) int { return kind(a) - kind(b) })
	return all
}

// gridField is one field of the grid.
type gridField struct {
	from lab.Mode
	by   string
	to   int // index of its column
}

// where names changes in few words: those that differ in one thing alone are named together, and ways only where not all are meant.
func (g *SwitchGrid) where(all []gridField) []string {
	type pair struct {
		from lab.Mode
		to   int
	}
	var pairs []pair
	ways, every := map[pair][]string{}, map[pair]int{}
	for _, c := range all {
		p := pair{c.from, c.to}
		pairs = appendNew(pairs, p)
		ways[p] = append(ways[p], c.by)
	}
	for _, row := range g.Rows {
		for i, s := range row.Cells {
			if s != nil {
				every[pair{row.From, i}]++
			}
		}
	}
	text := func(p pair) string {
		if every[p] > 1 && len(ways[p]) == every[p] {
			return ""
		}
		return " by " + strings.Join(ways[p], ", ")
	}
	// First the columns of one mode before, then the modes before that have the same columns.
	type group struct{ to, by string }
	var groups []group
	from := map[group][]string{}
	heads := g.Heads()
	done := map[pair]bool{}
	for _, p := range pairs {
		if done[p] {
			continue
		}
		var to []string
		for _, o := range pairs {
			if o.from == p.from && text(o) == text(p) {
				done[o] = true
				to = append(to, strings.TrimPrefix(heads[o.to], "to "))
			}
		}
		k := group{strings.Join(to, ", "), text(p)}
		groups = appendNew(groups, k)
		from[k] = append(from[k], string(p.from))
	}
	var where []string
	for _, k := range groups {
		where = append(where, "from "+strings.Join(from[k], ", ")+" to "+k.to+k.by)
	}
	return where
}

// number is "1 rule", "3 rules".
func number(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
