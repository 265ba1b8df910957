package remote

import (
	"net/netip"

	"kplab/lab/probe"
)

// request is a line to the far end: an id and one thing to do. Requests are answered as they are done, not in their order.
type request struct {
	ID       uint64         `json:"id"`
	Dial     *probe.Request `json:"dial,omitempty"`
	Cancel   uint64         `json:"cancel,omitempty"` // id of a request whose answer nobody waits for any more; it has no answer of its own
	Listen   *listener      `json:"listen,omitempty"`
	Close    bool           `json:"close,omitempty"` // every server
	Get      *page          `json:"get,omitempty"`
	Describe bool           `json:"describe,omitempty"`
}

// listener is a server to start; one that is there already is left as it is.
type listener struct {
	Name    string `json:"name"`
	Network string `json:"network"`
	Port    int    `json:"port"` // 0: one that is free
}

// page is something to read over HTTP from 127.0.0.1.
type page struct {
	Port int    `json:"port"`
	Path string `json:"path"`
}

// answer is a line from the far end, to the request of that id.
type answer struct {
	ID      uint64         `json:"id"`
	Error   string         `json:"error,omitempty"` // the far end could not tell; all else is empty then
	Outcome *probe.Outcome `json:"outcome,omitempty"`
	Port    int            `json:"port,omitempty"` // that a server listens on
	Text    string         `json:"text,omitempty"`
	Place   *Place         `json:"place,omitempty"`
}

// Place is what a place says of itself.
type Place struct {
	Addresses []netip.Addr `json:"addresses"` // of all its interfaces
	// RawSockets is why the place has no raw sockets, which probes need to tell a refusal from an ICMP error; "" if it has.
	RawSockets string `json:"rawSockets,omitempty"`
}
