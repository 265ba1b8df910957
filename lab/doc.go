// Package lab holds the words of the laboratory: what a cell is, what it runs in, what it observes and what it comes to.
//
// A cell is scenario x mode x kernel x kube-proxy version x userland x substrate. A [Plan] groups cells by the machine that
// can run them; a [Runner] (the host in private namespaces, a VM) takes a [Job] and sends [Event]s; an [Env] (netns, kind)
// is what one cell runs in. A job may hold [Trial]s instead of cells: a benchmark, whose [Measurement]s are events too. Package lab knows no substrate and no machine by name: they are passed in.
package lab
