package lab

import "time"

// EventType names what an event tells.
type EventType string

const (
	EventReady    EventType = "ready"      // the machine is up: Machine
	EventStart    EventType = "cell-start" // Cell begins
	EventCheck    EventType = "check"      // Cell recorded Check
	EventGap      EventType = "gap"        // Cell recorded Gap
	EventSurvive  EventType = "survivors"  // Cell recorded Survivors
	EventState    EventType = "state"      // Cell recorded State
	EventStep     EventType = "step"       // Cell logs a script line or its outcome: Message
	EventEvidence EventType = "evidence"   // Cell leaves a file: Path, Data
	EventEnd      EventType = "cell-end"   // Cell came to Result
	EventLog      EventType = "log"        // the machine says Message
	EventDone     EventType = "done"       // the machine has no more cells

	EventTrial       EventType = "trial-start" // Trial begins
	EventMeasurement EventType = "measurement" // Trial came to Measurement
	EventTrialEnd    EventType = "trial-end"   // Trial is over; Message says why, if it could not go on
)

// Event is one line of the stream that a machine sends while it runs a job, as JSON: the same from the host and from a VM.
type Event struct {
	Type    EventType  `json:"type"`
	Time    time.Time  `json:"time"` // UTC, by the machine's clock
	Cell    string     `json:"cell,omitempty"`
	Machine *Machine   `json:"machine,omitempty"`
	Check   *Check     `json:"check,omitempty"`
	Gap     *Gap       `json:"gap,omitempty"`
	Survive *Survivors `json:"survivors,omitempty"`
	State   *State     `json:"state,omitempty"`
	Result  *Result    `json:"result,omitempty"`
	Path    string     `json:"path,omitempty"` // of evidence, relative to the cell's folder
	Data    []byte     `json:"data,omitempty"`
	Message string     `json:"message,omitempty"`

	Trial       *Trial       `json:"trial,omitempty"`
	Measurement *Measurement `json:"measurement,omitempty"`
}

// Machine is what a machine says of itself once it is up.
type Machine struct {
	Release     string            `json:"release"`     // uname -r
	Accelerator string            `json:"accelerator"` // "host", "kvm" or "tcg"
	CPU         string            `json:"cpu"`
	Cores       int               `json:"cores"`
	Features    map[string]bool   `json:"features"` // kernel features probed, by name: "ip_vs", "nf_tables", "dummy", ...
	Tools       map[string]string `json:"tools"`    // the userland's tools and their versions
	Unit        float64           `json:"unit"`     // how many times slower than the reference machine; deadlines scale with it
	BootMs      int64             `json:"bootMs,omitempty"`
}
