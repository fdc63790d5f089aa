// Package engine is one broker without goroutines, clocks and sockets: log, replicas, coordinators, controller and API
// assembled. Whoever drives it (package broker with goroutines, broker/sim with a seed and virtual time) calls
//
//	Handle    for each request, from any goroutine; partition locks are inside
//	Step      on one goroutine at a time, whenever NextWake has come or Wake was called
//	Ready     after each Step: the tasks that may block, to be run anywhere
//	Complete  with what a task brought back
//
// Data plane by call, control plane by message: Produce, Fetch and the group APIs work under locks of their own; changes of the
// cluster wait in an inbox until the next Step.
//
// # Order of durability
//
// A change of the metadata is answered and becomes visible only after its chain entry was created and read back. A lease is
// acted on only while it is valid by the clock that comes in, and everything that its holder writes carries its epoch. Replies of
// coordinators wait for the high watermark.
package engine
