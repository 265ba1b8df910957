package results

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"kplab/lab"
)

// JUnit writes runs as JUnit XML, in the elements that Jenkins, GitLab and GitHub's reporters share: a testsuite for
// each setting of each run with its kernel, mode and versions as properties, and a testcase for each scenario with at most one
// failure, error or skipped element. Times are in seconds.
func JUnit(w io.Writer, runs ...*Run) error {
	all := junitSuites{Name: "kplab"}
	var ms int64
	for _, run := range runs {
		ms += run.DurationMs
		all.add(run)
	}
	all.Time = junitSeconds(ms)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return fmt.Errorf("encode JUnit XML: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// add appends the suites of a run.
func (all *junitSuites) add(run *Run) {
	m := NewMatrix(run)
	labels := labelsOf(run)
	for _, c := range m.Columns {
		suite := junitSuite{
			Name:       labels[c],
			Timestamp:  run.Started.UTC().Format("2006-01-02T15:04:05"),
			Hostname:   c.Kernel,
			Properties: junitProperties(run, c),
		}
		var n Count
		var ms int64
		for _, s := range m.Scenarios {
			if cell := m.Cell(s, c); cell != nil {
				n.add(cell.Verdict)
				ms += cell.DurationMs
				suite.Cases = append(suite.Cases, junitCaseOf(run, labels[c], *cell))
			}
		}
		suite.Tests, suite.Failures, suite.Errors, suite.Skipped = len(suite.Cases), n.Fail, n.Error, n.Skip
		suite.Time = junitSeconds(ms)
		all.Tests += suite.Tests
		all.Failures += suite.Failures
		all.Errors += suite.Errors
		all.Skipped += suite.Skipped
		all.Suites = append(all.Suites, suite)
	}
}

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Skipped  int          `xml:"skipped,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name       string          `xml:"name,attr"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Errors     int             `xml:"errors,attr"`
	Skipped    int             `xml:"skipped,attr"`
	Time       string          `xml:"time,attr"`
	Timestamp  string          `xml:"timestamp,attr"`
	Hostname   string          `xml:"hostname,attr"`
	Properties []junitProperty `xml:"properties>property"`
	Cases      []junitCase     `xml:"testcase"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Name      string       `xml:"name,attr"`
	Classname string       `xml:"classname,attr"`
	Time      string       `xml:"time,attr"`
	Skipped   *junitReason `xml:"skipped"`
	Error     *junitReason `xml:"error"`
	Failure   *junitReason `xml:"failure"`
	SystemOut *junitText   `xml:"system-out"`
}

type junitText struct {
	Text string `xml:",cdata"`
}

type junitReason struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",cdata"`
}

func junitProperties(run *Run, c Column) []junitProperty {
	p := []junitProperty{
		{"mode", string(c.Mode)},
		{"kernel", c.Kernel},
		{"kernel.release", c.Release},
		{"kernel.accelerator", c.Accelerator},
		{"kubeProxy", c.KubeProxy},
		{"userland", c.Userland},
		{"substrate", c.Substrate},
		{"kplab", run.Host.KPLab},
		{"run", run.ID},
	}
	for _, m := range run.Machines {
		if m.Kernel == c.Kernel && m.Userland == c.Userland && m.Substrate == c.Substrate && (c.Release == "" || m.Release == c.Release) {
			for _, tool := range slices.Sorted(maps.Keys(m.Tools)) {
				p = append(p, junitProperty{"tool." + tool, m.Tools[tool]})
			}
		}
	}
	return p
}

func junitCaseOf(run *Run, label string, r lab.Result) junitCase {
	// Readers make a tree of a class's name by its dots; the release's dots would tear it apart.
	class := "kplab." + strings.NewReplacer(".", "_", " / ", ".").Replace(label)
	c := junitCase{Name: r.Scenario, Classname: class, Time: junitSeconds(r.DurationMs)}
	if r.Verdict == lab.Skip {
		c.Skipped = &junitReason{Message: brief(r.Reason)}
		return c
	}
	out := "repeat: " + r.Repro + "\n"
	if folder, names := EvidenceOf(run.Dir, r); folder != "" {
		out += "evidence: " + folder + "\n"
		for _, n := range names {
			out += "  " + n + "\n"
		}
	}
	switch r.Verdict {
	case lab.Fail:
		c.Failure = &junitReason{brief(r.Reason), "deviation", printable(deviationText(run, r))}
	case lab.Error:
		c.Error = &junitReason{brief(r.Reason), "error", printable(r.Reason + "\n" + deviationText(run, r))}
	default:
		return c
	}
	c.SystemOut = &junitText{printable(out)}
	return c
}

// deviationText spells out each check of a cell that is not as asserted.
func deviationText(run *Run, r lab.Result) string {
	var b strings.Builder
	for _, c := range Deviations(r) {
		fmt.Fprintf(&b, "%s: %s\n", c.Step, c.What)
		if c.Control {
			b.WriteString("  control\n")
		}
		if c.Claim != "" {
			fmt.Fprintf(&b, "  claim:    %s\n", claimText(run, c.Claim))
		}
		fmt.Fprintf(&b, "  expected: %s\n  observed: %s\n", c.Expected, c.Observed)
	}
	return b.String()
}

func junitSeconds(ms int64) string {
	return fmt.Sprintf("%.3f", (time.Duration(ms) * time.Millisecond).Seconds())
}
