package lab

// Verdict is what a cell comes to.
type Verdict string

const (
	Pass  Verdict = "pass"  // every check as asserted
	Fail  Verdict = "fail"  // a check deviates
	Skip  Verdict = "skip"  // not applicable here, for the reason given
	Error Verdict = "error" // the lab itself could not tell, for the reason given
)

// Check is one asserted observation inside a cell.
type Check struct {
	Claim    string `json:"claim,omitempty"`   // id of the claim it bears on, "" for none
	Step     string `json:"step"`              // file:line of the assertion
	What     string `json:"what"`              // what was observed: "probe ext tcp n1:nodeport/web"
	Expected string `json:"expected"`          // as the script says it
	Observed string `json:"observed"`          // as it came out
	OK       bool   `json:"ok"`                // observed meets expected
	Control  bool   `json:"control,omitempty"` // proves that the lab can see the other outcome; if it deviates, the cell is an error
	// Contradicts is set where reality, as asserted, is not what the claim says: what is really so.
	Contradicts string `json:"contradicts,omitempty"`
}

// BeforeAnyChange is what a Gap is During at the first look, which shows that the traffic flows.
const BeforeAnyChange = "before any change"

// What a Gap's attempts are, where they are not new TCP connections.
const (
	UDPRequests = "udpRequests" // requests of one UDP flow, each of which wants an answer
	UDPOneWay   = "udpOneWay"   // datagrams of one UDP flow, counted at whoever receives them
)

// Gap is what steady traffic met while something changed: attempts at a fixed rate.
type Gap struct {
	Step     string         `json:"step"`           // file:line that looked
	Name     string         `json:"name,omitempty"` // what the script calls the traffic: "outside"
	Kind     string         `json:"kind,omitempty"` // UDPRequests, UDPOneWay; "" for new TCP connections
	During   string         `json:"during"`         // what changed, in the script's words
	Traffic  string         `json:"traffic"`        // "ext n1:nodeport/web"
	Attempts int            `json:"attempts"`
	Failed   int            `json:"failed"`
	Outcomes map[string]int `json:"outcomes"` // "reachable": 980, "timeout": 20; of one-way datagrams "lost"
	// Endpoints counts, for a UDP flow, the datagrams that each endpoint answered or received.
	Endpoints map[string]int `json:"endpoints,omitempty"`
	// Ms is the time from the start of the first attempt that failed to the start of the first that succeeded after the last failure.
	// It is known to IntervalMs. Open is set where none had succeeded when the script looked.
	Ms         float64 `json:"ms"`
	Open       bool    `json:"open,omitempty"`
	IntervalMs float64 `json:"intervalMs"` // between the starts of two attempts
}

// Result is what one cell came to: an element of run.json's "cells".
type Result struct {
	Cell
	Verdict    Verdict `json:"verdict"`
	Reason     string  `json:"reason,omitempty"` // for skip and error; for fail the first deviation; for a pass, what was left out for want of a place
	DurationMs int64   `json:"durationMs"`
	Checks     []Check `json:"checks"`
	Gaps       []Gap   `json:"gaps,omitempty"`
	// Survivors are what became of connections that were there before a change, States what nodes' kernels held.
	Survivors []Survivors `json:"survivors,omitempty"`
	States    []State     `json:"states,omitempty"`
	Evidence  []string    `json:"evidence"` // paths relative to the run's folder
	Repro     string      `json:"repro"`
	// Sabotage is set where the env was broken on purpose and the script ran to an end of its own: a verdict without it, as
	// of a machine that died, says nothing about the scenario.
	Sabotage *Sabotage `json:"sabotage,omitempty"`
	// Repeats are all runs of a cell that a run repeats, in their order; the rest of the result is then that of the first of the
	// worst of them, which Cell.Repeat names.
	Repeats []Repeat `json:"repeats,omitempty"`
}

// Repeat is one of several runs of a cell: what differs between them. Its fields are as in Result.
type Repeat struct {
	Repeat     int      `json:"repeat"` // from 1
	Verdict    Verdict  `json:"verdict"`
	Reason     string   `json:"reason,omitempty"`
	DurationMs int64    `json:"durationMs"`
	Checks     []Check  `json:"checks"`
	Evidence   []string `json:"evidence"`
}

// Sabotage says what was done to a cell's env to see whether the verdict turns.
type Sabotage struct {
	Name  string `json:"name"`            // "no-kube-proxy"
	Bites int    `json:"bites"`           // how often it came to bear; 0 where the script never met it
	Error string `json:"error,omitempty"` // why it could not be carried out
}

// Claim is a sentence somebody published about a mode, in our words, with its source.
type Claim struct {
	ID     string `json:"id"`     // "N1"
	Source string `json:"source"` // "vips", "kep 3866", "k/k#74839"
	Text   string `json:"text"`
	// Reality is what is really so, for a claim that a scenario contradicts.
	Reality string `json:"reality,omitempty"`
	// Untested is why no scenario bears on it, for a claim that none does.
	Untested string `json:"untested,omitempty"`
}
