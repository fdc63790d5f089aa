// Package wire holds what every other package says to each other in the words of the Kafka protocol: frames, request and
// response headers, API keys, error codes, and distinct types for offsets, epochs and ids.
//
// It holds no clock, no goroutine and no I/O. Message bodies are encoded and decoded by kmsg; the headers around them,
// which kmsg does not have, are here.
package wire
