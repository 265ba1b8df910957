// Package remote makes probes, and answers them, in a place that this process cannot enter, such as a pod on somebody's node: the same
// binary runs there and is spoken to over its standard input and output, one JSON document a line.
//
// The far end is [Answer], the near end a [Client]. Both are of one build, so that the lines need no version. The far end opens sockets
// for what it is asked and for nothing else, and is gone when its input ends.
package remote
