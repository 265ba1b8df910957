package results

import (
	"cmp"
	"slices"
	"strings"

	"kplab/lab"
)

// Column is a setting: everything about a cell but its scenario. Cells whose settings differ in anything are never merged.
type Column struct {
	Mode        lab.Mode
	Kernel      string // lab.Kernel.Name
	Release     string // uname -r, "" for a machine that never came up
	Accelerator string
	KubeProxy   string
	Userland    string
	Substrate   string // "cluster CONTEXT" for one of a cluster that existed before
}

func columnOf(c lab.Cell) Column {
	substrate := c.Substrate
	if c.Context != "" {
		substrate += " " + c.Context
	}
	return Column{c.Mode, c.Kernel.Name, c.Kernel.Release, c.Kernel.Accelerator, c.KubeProxy, c.Userland.Name, substrate}
}

// planned is the column as the plan knows it, before a machine was up.
func (c Column) planned() Column {
	c.Release, c.Accelerator = "", ""
	return c
}

// KernelName is "debian-12 6.1.0-39-amd64 tcg", or "host 6.18.5": a host that runs itself needs no accelerator's name.
func (c Column) KernelName() string {
	words := []string{c.Kernel}
	if c.Release != "" {
		words = append(words, c.Release)
	}
	if c.Accelerator != "" && c.Accelerator != c.Kernel {
		words = append(words, c.Accelerator)
	}
	return strings.Join(words, " ")
}

// columnsOf returns the settings of the runs' cells in the order of the matrix: by mode, then as the plan has kernels,
// versions, userlands and substrates, and the column that each cell belongs to.
func columnsOf(runs ...*Run) ([]Column, map[Column]Column) {
	var all []Column
	for _, run := range runs {
		for _, cell := range run.Cells {
			if c := columnOf(cell.Cell); !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	// A cell whose machine died before it said what it is belongs to the column of its plan, if there is just one.
	home := map[Column]Column{}
	var columns []Column
	for _, c := range all {
		home[c] = c
		if c.Release == "" {
			var up []Column
			for _, o := range all {
				if o.Release != "" && o.planned() == c.planned() {
					up = append(up, o)
				}
			}
			if len(up) == 1 {
				home[c] = up[0]
				continue
			}
		}
		columns = append(columns, c)
	}
	rank := func(value func(Column) string) func(Column) int {
		var seen []string
		for _, c := range all {
			seen = appendNew(seen, value(c))
		}
		return func(c Column) int { return slices.Index(seen, value(c)) }
	}
	kernel := rank(func(c Column) string { return c.Kernel })
	version := rank(func(c Column) string { return c.KubeProxy })
	userland := rank(func(c Column) string { return c.Userland })
	substrate := rank(func(c Column) string { return c.Substrate })
	slices.SortStableFunc(columns, func(a, b Column) int {
		return cmp.Or(
			cmp.Compare(modeRank(a.Mode), modeRank(b.Mode)),
			cmp.Compare(kernel(a), kernel(b)),
			cmp.Compare(version(a), version(b)),
			cmp.Compare(userland(a), userland(b)),
			cmp.Compare(substrate(a), substrate(b)),
		)
	})
	return columns, home
}

func modeRank(m lab.Mode) int {
	if i := slices.Index(lab.Modes(), m); i >= 0 {
		return i
	}
	return len(lab.Modes())
}

// headers returns each column's header lines: mode, kernel, kube-proxy's version, and a fourth for the userland and the
// substrate if columns differ in them or they are not the defaults.
func headers(columns []Column) [][]string {
	all := unusual(columns)
	out := make([][]string, len(columns))
	for i, c := range columns {
		out[i] = c.header(all)
	}
	return out
}

// unusual reports whether the columns' userlands and substrates are worth naming.
func unusual(columns []Column) bool {
	return slices.ContainsFunc(columns, func(c Column) bool {
		return c.Userland != columns[0].Userland || c.Substrate != columns[0].Substrate ||
			c.Userland != lab.DefaultUserland || c.Substrate != lab.DefaultSubstrate
	})
}

// header returns the column's header lines, with the fourth if all of the setting is asked for.
func (c Column) header(all bool) []string {
	lines := []string{string(c.Mode), c.KernelName(), c.KubeProxy}
	switch {
	case all && c.Userland == lab.ClusterSubstrate:
		lines = append(lines, c.Substrate)
	case all:
		lines = append(lines, "userland "+c.Userland+" "+c.Substrate)
	}
	return lines
}

// labelsOf returns the one-line name of every setting in the runs: "ipvs / debian-12 6.1.0-39-amd64 tcg / 1.37.2".
func labelsOf(runs ...*Run) map[Column]string {
	columns, home := columnsOf(runs...)
	lines := make([]string, len(columns))
	for i, h := range headers(columns) {
		lines[i] = strings.Join(h, " / ")
	}
	return named(columns, lines, home)
}

// shortLabelsOf is labelsOf with the names of shortLabels.
func shortLabelsOf(run *Run) map[Column]string {
	columns, home := columnsOf(run)
	return named(columns, shortLabels(columns), home)
}

// named gives each setting the name of the column that it belongs to.
func named(columns []Column, names []string, home map[Column]Column) map[Column]string {
	labels := map[Column]string{}
	for from, to := range home {
		labels[from] = names[slices.Index(columns, to)]
	}
	return labels
}

// shortLabels names each column by its mode, and by what else tells it from the other columns of that mode: "ipvs",
// "nftables (host 6.18.5)".
func shortLabels(columns []Column) []string {
	out := make([]string, len(columns))
	for i, c := range columns {
		var rest []string
		for _, value := range []func(Column) string{
			Column.KernelName,
			func(c Column) string { return c.KubeProxy },
			func(c Column) string { return c.Userland },
			func(c Column) string { return c.Substrate },
		} {
			if slices.ContainsFunc(columns, func(o Column) bool { return o.Mode == c.Mode && value(o) != value(c) }) {
				rest = append(rest, value(c))
			}
		}
		out[i] = string(c.Mode)
		if len(rest) > 0 {
			out[i] += " (" + strings.Join(rest, ", ") + ")"
		}
	}
	return out
}

// compareNatural orders "N2" before "N10".
func compareNatural(a, b string) int {
	for a != "" && b != "" {
		an, bn := digits(a), digits(b)
		if an > 0 && bn > 0 {
			x, y := strings.TrimLeft(a[:an], "0"), strings.TrimLeft(b[:bn], "0")
			if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); c != 0 {
				return c
			}
			a, b = a[an:], b[bn:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

// digits is the number of decimal digits that s begins with.
func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}
