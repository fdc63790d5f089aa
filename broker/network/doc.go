// Package network takes Kafka frames from sockets, hands them to a handler one after the other, and sends the answers in
// the order of the requests.
//
// Each connection has one goroutine: it reads, calls the handler and writes; nobody else touches the socket. Whoever
// completes a parked request only leaves the reply with the connection and wakes its goroutine, which costs one switch of
// goroutines and never the completer's time, however slow the client's socket is.
//
// While a connection is idle it holds no buffer. The size of a frame is checked before anything is allocated for it, and
// memory is taken as bytes arrive, never because a client claims that they will. Bytes of requests that were read and not
// yet answered are bounded over all connections.
//
// What an answer holds of files goes from the page cache to the socket by sendfile where the system has it.
package network
