// Package broker is the shell around broker/engine: it owns the goroutines, the clock, the listeners and the object store's
// client of one broker, starts them in order and stops them in reverse.
//
//	Start: store, client sockets (which serve nobody yet), admin listener, engine (lock, recover, chain), loop, clients
//	Close: client listener, controlled stop of the engine, loop, admin listener
package broker
