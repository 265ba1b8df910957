package report

import (
	"fmt"
	"strings"

	"kplab/lab"
	"kplab/results"
)

// status is what the report comes to, in the words of a cell's verdict: fail if a check deviates, else error if the lab could not tell
// everything, else pass. "" where there is no run.
func (d *data) status() lab.Verdict {
	status := lab.Verdict("")
	for _, run := range d.runs {
		switch results.ExitStatus(run) {
		case results.ExitFail:
			return lab.Fail
		case results.ExitUnknown:
			status = lab.Error
		default:
			if status == "" {
				status = lab.Pass
			}
		}
	}
	return status
}

// count counts the cells of all runs.
func (d *data) count() (n results.Count) {
	for _, run := range d.runs {
		c := run.Count()
		n.Pass, n.Fail, n.Skip, n.Error = n.Pass+c.Pass, n.Fail+c.Fail, n.Skip+c.Skip, n.Error+c.Error
	}
	return n
}

// sentence is the verdict in a sentence or two.
func (d *data) sentence() string {
	if len(d.runs) == 0 {
		s := fmt.Sprintf("Figures of %s; no cell was run.", plural(len(d.benches()), "benchmark"))
		if n := len(d.notes); n > 0 {
			s += fmt.Sprintf(" %s to what could not be measured or shown.", plural(n, "note"))
		}
		return s
	}
	n := d.count()
	ran := n.Pass + n.Fail
	var s string
	switch {
	case ran == 0 && n.Error == 0:
		s = "No cell was run."
		if n.Skip > 0 {
			s = fmt.Sprintf("No cell was run: all %d were skipped, each with its reason.", n.Skip)
		}
	case n.Fail > 0:
		s = fmt.Sprintf("%d of %s that ran to the end %s from what the scenarios assert: %s.", n.Fail, plural(ran, "cell"), verb(n.Fail, "deviates", "deviate"), d.names(lab.Fail))
	case ran == 0:
	case ran == 1:
		s = "The one cell that ran to the end is as its scenario asserts."
	default:
		s = fmt.Sprintf("All %d cells that ran to the end are as the scenarios assert.", ran)
	}
	if n.Error > 0 {
		s = strings.TrimSpace(s + fmt.Sprintf(" Of %s the lab could not tell: %s.", plural(n.Error, "cell"), d.names(lab.Error)))
	}
	if n.Skip > 0 && ran+n.Error > 0 {
		s += fmt.Sprintf(" %s skipped, each with its reason.", plural(n.Skip, "cell")+verb(n.Skip, " was", " were"))
	}
	for _, run := range d.runs {
		if run.Finished.IsZero() {
			s += fmt.Sprintf(" Run %s was not finished.", run.ID)
		}
		if missing := run.MissingShards(); len(missing) > 0 {
			s += fmt.Sprintf(" Of run %s shard %s is missing.", run.ID, strings.Join(missing, ", "))
		}
	}
	return s
}

// findings is what the runs have found, in a sentence.
func (d *data) findings() string {
	if len(d.runs) == 0 {
		return ""
	}
	claims := results.CountClaims(d.book.Results())
	tested := claims.Confirmed + claims.Contradicted
	differences := len(results.Differences(d.latest))
	s := fmt.Sprintf("%s out differently in different settings.", plural(differences, "observation")+verb(differences, " comes", " come"))
	if differences == 0 {
		s = "Every observation comes out alike in all settings."
	}
	if tested == 0 {
		return s
	}
	return s + fmt.Sprintf(" Of %s that were tested, %d %s confirmed and %d contradicted.",
		plural(tested, "published claim"), claims.Confirmed, verb(claims.Confirmed, "is", "are"), claims.Contradicted)
}

const maxNames = 3

// names lists the cells of a verdict: "nodeport-localhost (nftables), hairpin (ipvs) and 3 more".
func (d *data) names(v lab.Verdict) string {
	var names []string
	for _, run := range d.runs {
		for _, c := range run.Cells {
			if c.Verdict == v {
				names = appendNew(names, fmt.Sprintf("%s (%s)", c.Scenario, d.layout.Labels[d.layout.Index(c.Cell)]))
			}
		}
	}
	if len(names) > maxNames+1 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
	}
	return strings.Join(names, ", ")
}

// benches names the benchmarks that there are figures of.
func (d *data) benches() (names []string) {
	for _, set := range d.sets {
		for _, l := range set.Lines {
			names = appendNew(names, l.Bench)
		}
	}
	return names
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
