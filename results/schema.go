package results

import (
	"time"

	"kplab/lab"
)

// Schema is the version of run.json that this package writes, which schema/run.schema.json describes. Fields may be added within a version: readers ignore
// fields they do not know. A change of a field's meaning, name or unit raises it, and [Read] then goes on reading the
// older versions.
const Schema = 1

// Run is the cells of one invocation: the content of run.json. Field names are in lowerCamelCase, durations in
// milliseconds, times in UTC as RFC 3339.
type Run struct {
	Schema  int       `json:"schema"`
	ID      string    `json:"id"`
	Started time.Time `json:"started"`
	// Finished is absent from run.json while the run goes on, and for good if the run was killed and not recovered.
	Finished   time.Time `json:"finished,omitzero"`
	DurationMs int64     `json:"durationMs"` // wall clock, up to now while the run goes on
	Host       Host      `json:"host"`
	Command    []string  `json:"command"`  // argv
	Machines   []Machine `json:"machines"` // that came up
	// Sabotage is what was broken on purpose in every cell (`kplab selftest`), "" for nothing. What a sabotaged run saw is no
	// evidence of anything: it has no Claims.
	Sabotage string `json:"sabotage,omitempty"`
	// Shard is which part of a matrix this run is, "2/5" for the second of five (`kplab run --shard`); "" for all of it.
	Shard string `json:"shard,omitempty"`
	// Shards are the runs that this one was merged from (`kplab merge`). Started and Finished are then those of the first to begin and
	// the last to end, and of Host what the shards' hosts have in common: strings that differ are listed, numbers are the smallest.
	Shards []Shard `json:"shards,omitempty"`
	// Cells are in the order of the plan. While the run goes on, cells that have not ended are absent. A cell that ran several
	// times (`kplab run --repeat`) is one of them, with all its runs in Repeats.
	Cells []lab.Result `json:"cells"`
	// Claims is the ledger of this run: the catalogue's claims in its order, then those that only checks name.
	Claims []ClaimResult `json:"claims"`

	// Dir is the folder that the run was read from or is written to; evidence paths are relative to it.
	Dir string `json:"-"`
}

// Shard is one of the runs that a run was merged from.
type Shard struct {
	ID         string    `json:"id"`
	Shard      string    `json:"shard,omitempty"` // "2/5"
	Started    time.Time `json:"started"`
	Finished   time.Time `json:"finished,omitzero"`
	DurationMs int64     `json:"durationMs"`
	Host       Host      `json:"host"`
	Command    []string  `json:"command"`
}

// Host says where kplab itself ran.
type Host struct {
	OS          string `json:"os"`          // "Debian GNU/Linux 12 (bookworm)"
	Kernel      string `json:"kernel"`      // uname -r
	CPU         string `json:"cpu"`         // model name
	Cores       int    `json:"cores"`       // usable by this process
	MemoryBytes int64  `json:"memoryBytes"` // total
	KPLab       string `json:"kplab"`       // version of kplab
	User        string `json:"user"`        // "root" or "uid 1000"
}

// Machine is what ran cells of one kernel, userland and substrate, as it described itself when it was up.
type Machine struct {
	Kernel    string `json:"kernel"`    // lab.Kernel.Name
	Userland  string `json:"userland"`  // lab.Userland.Name
	Substrate string `json:"substrate"` // "netns", "kind" or "cluster"
	lab.Machine
}

// ClaimVerdict is what a claim comes to across the cells of one run or of several.
type ClaimVerdict string

const (
	Confirmed    ClaimVerdict = "confirmed"    // tested, and everything seen agrees with it
	Contradicted ClaimVerdict = "contradicted" // something seen is not as it says
	Untested     ClaimVerdict = "untested"     // no cell that could tell has a check of it
)

// ClaimResult is one line of the ledger.
type ClaimResult struct {
	lab.Claim
	Verdict ClaimVerdict `json:"verdict"`
	// Note says, for a contradicted claim, what is really so and where that was seen.
	Note string `json:"note,omitempty"`
	// Cells are the ids of the cells that tested it.
	Cells []string `json:"cells"`
	// Settings names the kernels, modes and versions of those cells: "ipvs / debian-12 6.1.0-39-amd64 tcg / 1.37.2".
	Settings []string `json:"settings"`
}
