package network

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	smallestBuffer = 1 << 10
	// largestPooled is the largest buffer that is kept: the default max.request.size of clients with room to spare.
	largestPooled = 4 << 20
	classes       = 13 // powers of two from smallestBuffer to largestPooled
	// pooledMax is how many bytes of free buffers are kept over all classes.
	pooledMax = 32 << 20
	// smallMax is the largest buffer that never waits for room: heartbeats, fetches of consumers and followers get
	// through while producers are held back. It counts as used like any other.
	smallMax = 16 << 10
	// largeStep is what the sizes of larger buffers are multiples of.
	largeStep = 1 << 20
	// togetherMax is the largest buffer that several frames are read into at once. Frames larger than half of it are read alone.
	togetherMax = 64 << 10
	// expectMax is the largest buffer that is taken before the size of a frame is known.
	expectMax = 1 << 20
)

// buffer holds bytes from a socket. It goes back when its reader and all requests that alias it have let go.
type buffer struct {
	b    []byte // of full length
	refs atomic.Int32

	cost      int  // what it counts as used; guarded by memory.mu
	overdrawn bool // it is what took the memory past its limit; guarded by memory.mu
}

// memory hands out buffers and bounds their sum. One buffer at a time may go past the bound, so that requests that are
// half read and hold all the room together do not wait for each other for ever.
type memory struct {
	limit int64

	mu        sync.Mutex // guards all below; a leaf
	used      int64
	overdrawn bool
	waiters   []*conn // for room, in order of arrival
	free      [classes][]*buffer
	freeBytes int
}

func newMemory(limit int64) *memory { return &memory{limit: limit} }

// inUse is the size of all buffers that are out.
func (m *memory) inUse() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// classOf gives the class whose buffers hold n bytes, or classes where none does.
func classOf(n int) int {
	if n <= smallestBuffer {
		return 0
	}
	return min(bits.Len(uint(n-1))-bits.Len(uint(smallestBuffer-1)), classes)
}

// capacityFor is the size of the buffer that is made for n bytes.
func capacityFor(n int) int {
	if class := classOf(n); class < classes {
		return smallestBuffer << class
	}
	return (n + largeStep - 1) / largeStep * largeStep
}

// try takes a buffer of at least n bytes if there is room now. There always is for n up to smallMax.
func (m *memory) try(n int) *buffer {
	size := capacityFor(n)
	m.mu.Lock()
	if size > smallMax && (len(m.waiters) > 0 || !m.fitsLocked(size)) {
		m.mu.Unlock()
		return nil
	}
	b := m.takeLocked(size)
	m.mu.Unlock()
	return b.ready(size)
}

// grow takes a buffer of at least n bytes for c, which moves there what it has in old (nil for nothing) and then lets
// go of old. Without room it returns nil, and c is notified when it should try again.
func (m *memory) grow(c *conn, n int, old *buffer) *buffer {
	size := capacityFor(n)
	m.mu.Lock()
	var moved buffer // what passes from old to the new one; a request that still aliases old keeps its share
	if old != nil && old.refs.Load() == 1 {
		moved.cost, moved.overdrawn = old.cost, old.overdrawn
	}
	overdraw := false
	if size > smallMax && !moved.overdrawn {
		fits := m.fitsLocked(size - moved.cost)
		if len(m.waiters) > 0 && m.waiters[0] != c || !fits && m.overdrawn {
			if !slices.Contains(m.waiters, c) {
				m.waiters = append(m.waiters, c)
			}
			m.mu.Unlock()
			return nil
		}
		overdraw = !fits
	}
	if moved.cost > 0 {
		old.cost, old.overdrawn = 0, false
		m.used -= int64(moved.cost)
	}
	b := m.takeLocked(size)
	b.overdrawn = moved.overdrawn || overdraw
	m.overdrawn = m.overdrawn || overdraw
	next := m.leaveLocked(c)
	m.mu.Unlock()
	if next != nil {
		next.notify()
	}
	return b.ready(size)
}

func (m *memory) fitsLocked(n int) bool { return m.used+int64(n) <= m.limit }

// takeLocked counts a buffer of the given size; it has no bytes yet where none is free.
func (m *memory) takeLocked(size int) *buffer {
	m.used += int64(size)
	var b *buffer
	if class := classOf(size); class < classes && len(m.free[class]) > 0 {
		last := len(m.free[class]) - 1
		b = m.free[class][last]
		m.free[class][last] = nil
		m.free[class] = m.free[class][:last]
		m.freeBytes -= size
	} else {
		b = &buffer{}
	}
	b.cost = size
	return b
}

// ready gives a taken buffer its bytes, outside the lock, and its first holder.
func (b *buffer) ready(size int) *buffer {
	if b.b == nil {
		b.b = make([]byte, size)
	}
	b.refs.Store(1)
	return b
}

// release lets go of a buffer for one holder.
func (m *memory) release(b *buffer) {
	if b.refs.Add(-1) > 0 {
		return
	}
	m.mu.Lock()
	m.used -= int64(b.cost)
	if b.overdrawn {
		m.overdrawn = false
	}
	b.cost, b.overdrawn = 0, false
	if class := classOf(len(b.b)); class < classes && m.freeBytes+len(b.b) <= pooledMax {
		m.free[class] = append(m.free[class], b)
		m.freeBytes += len(b.b)
	}
	next := m.nextLocked()
	m.mu.Unlock()
	if next != nil {
		next.notify()
	}
}

// leave takes c out of the waiters.
func (m *memory) leave(c *conn) {
	m.mu.Lock()
	next := m.leaveLocked(c)
	m.mu.Unlock()
	if next != nil {
		next.notify()
	}
}

func (m *memory) leaveLocked(c *conn) (next *conn) {
	i := slices.Index(m.waiters, c)
	if i < 0 {
		return nil
	}
	m.waiters = slices.Delete(m.waiters, i, i+1)
	return m.nextLocked()
}

// nextLocked is whose turn it is, if trying may help.
func (m *memory) nextLocked() *conn {
	if len(m.waiters) == 0 || m.overdrawn && !m.fitsLocked(smallMax) {
		return nil
	}
	return m.waiters[0]
}
