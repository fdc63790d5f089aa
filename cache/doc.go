// Package cache keeps pieces of immutable objects that were read from the object store: bounded by bytes, each piece
// downloaded once however many readers ask.
//
// An object is cut into blocks of one size, named by the object's key and their number. A Pin holds the blocks of a range: what
// is not there comes by ranged gets, each of which fills as many neighbouring blocks as are missing, up to Options.RangeBytes.
// Blocks can be read one by one as the bytes of their get arrive. A download belongs to the cache and not to who
// asked for it: it goes on when the asker gives up, and the next one finds it.
//
// Memory is a fixed number of buffers, made as they are needed and never more: blocks that are pinned, being filled, or at rest
// all lie in them. Half of them are the window, in which every block begins, least recently used first to leave; the other half
// is ristretto's, which takes those blocks that leave the window that have been asked for more often than what it has.
// (Ristretto alone would turn away what is new; and it may drop what it is given at any time, so nothing in use lies there.) What does
// not fit beside the blocks in use waits for room, or is refused. Behind memory there may be a file with the same blocks. What it has
// is read and sent from where it lies, verified by its checksum whenever it is pinned, and takes no buffer: the page cache is its memory.
//
// The package starts no goroutine of its own: Options.Go does. No I/O and no wait happens under its lock.
package cache
