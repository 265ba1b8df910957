package probe

import (
	"encoding/json"
	"net/netip"
)

// The protocol of a [Server]. A request is a line; over UDP it is a datagram.
//
//	who [ID]      answer (as is any other line): one line of JSON, see answer
//	echo N        followed by N bytes: the same N bytes come back (not over UDP)
//	send N        N zero bytes come (not over UDP)
//	drip N EVERY  N zero bytes come, one at a time, with that between them, such as 20ms (not over UDP)
//	tell FLOW N   no answer: the server keeps N with the flow's (over UDP only)
//	told FLOW     answer, with the numbers that it was told (over UDP only)
const (
	whoRequest  = "who"
	echoRequest = "echo"
	sendRequest = "send"
	dripRequest = "drip"
	tellRequest = "tell"
	toldRequest = "told"
)

// answer says who answers and what it saw.
type answer struct {
	Endpoint string         `json:"endpoint"`         // the server's name
	Source   netip.AddrPort `json:"source"`           // the client, as the server sees it
	Address  netip.AddrPort `json:"address,omitzero"` // where the client's packets arrived, as the server sees it
	ID       string         `json:"id,omitempty"`     // the request's, so that a late answer is not taken for another's
	Told     spans          `json:"told,omitempty"`   // numbers that a one-way flow has told
}

// line is the answer as it is sent.
func (a answer) line() []byte {
	a.Source = unmap(a.Source)
	a.Address = unmap(a.Address)
	b, err := json.Marshal(a)
	if err != nil { // a struct of strings
		panic(err)
	}
	return append(b, '\n')
}

// reachable is the outcome of an answer; one that no [Server] gave is quoted in Detail.
func reachable(line []byte) (Outcome, answer) {
	var a answer
	if err := json.Unmarshal(line, &a); err != nil || a.Endpoint == "" {
		return Outcome{Kind: Reachable, Detail: "another server: " + firstLine(line)}, answer{}
	}
	return Outcome{Kind: Reachable, Endpoint: a.Endpoint, Source: a.Source}, a
}

// firstLine is printable text from the start of b, for a matrix.
func firstLine(b []byte) string {
	const most = 60
	text := make([]byte, 0, most)
	for _, c := range b {
		if len(text) == most || c == '\r' || c == '\n' {
			break
		}
		if c < ' ' || c > '~' {
			c = '.'
		}
		text = append(text, c)
	}
	return string(text)
}

func unmap(ap netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
