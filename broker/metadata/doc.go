// Package metadata holds what a cluster knows about itself: the records of the metadata log, the immutable Image that they
// build, the Delta between two images, and the Changes that a controller may be asked for.
//
// A Record is one flat JSON object with its type and version, so that jq reads the log and a snapshot. A reader that meets a
// type, a version or a field it doesn't know stops with an error; it never skips.
//
// An Image never changes after it was made. Image.Apply gives the next one and shares with it all that the records did not
// touch, so that an Image can be kept, compared and read by any number of goroutines without a lock. Two images with equal
// content have byte-equal snapshots, whichever way they were built: the hash of a snapshot is the hash of the state.
//
// The package reads no clock, does no I/O and starts no goroutine.
package metadata
