// Package peer is a broker's end of its connections to other brokers: requests go out one behind the other without waiting, and
// their answers come back in the same order. It moves frames and knows nothing of what is in them.
//
// A connection that fails in any way is over: all that waited hears of it, and whoever wants to go on dials again. What became
// of a request without an answer is not known.
package peer
