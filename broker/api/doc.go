// Package api turns requests of the Kafka protocol into calls on the replica manager, the coordinators, the controller and
// the metadata image, and their results into answers. One file a key, NN_name.go; the table in table.go is the one list of what
// is served: ApiVersions, the compatibility table in the docs and the labels of the request metrics come from it.
//
// It starts no goroutine and reads no clock.
package api
