// Package tierbench measures what remote data costs: a broker in a process of its own over a MinIO, beside plain gets and puts of the
// same objects in the same run, the two by turns. It is run by make tier-bench and has nothing to import.
//
// Each benchmark prints its figures once. Ratios are what counts: x-raw is the broker's figure to that of the plain client.
package tierbench
