package network

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestBufferSizes(t *testing.T) {
	for _, tt := range []struct{ n, capacity, class int }{
		{0, 1 << 10, 0},
		{1 << 10, 1 << 10, 0},
		{1<<10 + 1, 2 << 10, 1},
		{16 << 10, 16 << 10, 4},
		{largestPooled, largestPooled, classes - 1},
		{largestPooled + 1, largestPooled + largeStep, classes},
		{100 << 20, 100 << 20, classes},
	} {
		if c := capacityFor(tt.n); c != tt.capacity || classOf(tt.n) != tt.class {
			t.Errorf("%d bytes: a buffer of %d, class %d", tt.n, c, classOf(tt.n))
		}
	}
}

func waiter() *conn { return &conn{wake: make(chan struct{}, 1)} }

func (c *conn) notified() bool {
	select {
	case <-c.wake:
		return true
	default:
		return false
	}
}

func TestMemoryMakesLargeRequestsWaitInTurnAndSmallOnesNever(t *testing.T) {
	m := newMemory(1 << 20)
	a, b, c := waiter(), waiter(), waiter()
	first := m.grow(a, 1<<20, nil)
	over := m.grow(b, 1<<20, nil) // one may overdraw
	if first == nil || over == nil {
		t.Fatal("no buffer where there was room")
	}
	if m.grow(c, 64<<10, nil) != nil || m.try(64<<10) != nil {
		t.Fatal("a large buffer beyond the limit")
	}
	if small := m.try(smallMax); small == nil {
		t.Fatal("a small request has to wait")
	} else {
		m.release(small)
	}
	if m.grow(a, 32<<10, nil) != nil {
		t.Fatal("a passed c, which waits")
	}
	c.notified()
	m.release(first)
	if c.notified() && m.grow(c, 64<<10, nil) != nil {
		t.Fatal("still over the limit")
	}
	m.release(over)
	if !c.notified() {
		t.Fatal("c was not told that there is room")
	}
	buffer := m.grow(c, 64<<10, nil)
	if buffer == nil {
		t.Fatal("no buffer for c though there is room")
	}
	if !a.notified() {
		t.Fatal("a, which waits behind c, was not told")
	}
	m.leave(a)
	m.release(buffer)
	if m.inUse() != 0 || len(m.waiters) != 0 || m.overdrawn {
		t.Fatalf("%d bytes out, %d wait, overdrawn %v", m.inUse(), len(m.waiters), m.overdrawn)
	}
}

// Requests that are half here and hold all the room between them must come to an end.
func TestMemoryLetsOneHalfReadRequestGrowPastTheLimit(t *testing.T) {
	m := newMemory(2 << 20)
	a, b := waiter(), waiter()
	halfA, halfB := m.grow(a, 1<<20, nil), m.grow(b, 1<<20, nil)
	grownA := m.grow(a, 2<<20, halfA)
	if grownA == nil {
		t.Fatal("nobody may grow")
	}
	m.release(halfA)
	if m.grow(b, 2<<20, halfB) != nil {
		t.Fatal("both grew past the limit")
	}
	if grownA = m.grow(a, 4<<20, grownA); grownA == nil {
		t.Fatal("the one that overdraws can't go on")
	}
	m.release(grownA)
	if !b.notified() || m.grow(b, 2<<20, halfB) == nil {
		t.Fatal("b can't go on though a is done")
	}
}

func TestFreeBuffersAreKeptUpToACap(t *testing.T) {
	m := newMemory(math.MaxInt64)
	var all []*buffer
	for range 2 * pooledMax / largestPooled {
		all = append(all, m.try(largestPooled))
	}
	all = append(all, m.try(largestPooled+1))
	for _, b := range all {
		m.release(b)
	}
	if m.freeBytes != pooledMax {
		t.Errorf("%d bytes are kept", m.freeBytes)
	}
	if b := m.try(largestPooled); b != all[pooledMax/largestPooled-1] {
		t.Error("a free buffer was not used again")
	}
}

// Frames come out as they were sent, however they are cut on the way and whichever of them stay shared.
func TestFramesAreCutOutWhole(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newMemory(rapid.SampledFrom([]int64{math.MaxInt64, 128 << 10}).Draw(rt, "limit"))
		in := inbound{memory: m, max: defaultRequestMax, expect: smallestBuffer}
		c := waiter()
		var sent []string
		var stream []byte
		for i := range rapid.IntRange(1, 20).Draw(rt, "frames") {
			n := rapid.OneOf(rapid.IntRange(0, 50), rapid.IntRange(900, 1100), rapid.IntRange(15<<10, 17<<10),
				rapid.IntRange(0, 100<<10), rapid.Just(300<<10)).Draw(rt, "size")
			f := frame(int16(i), int32(i), strings.Repeat(string(rune('a'+i)), n))
			stream = append(stream, f...)
			sent = append(sent, string(f[sizeBytes:]))
		}
		type held struct {
			buffer *buffer
			frame  []byte
			want   string
		}
		var shared []held
		let := func() {
			if string(shared[0].frame) != shared[0].want {
				rt.Fatal("a shared frame was written over")
			}
			m.release(shared[0].buffer)
			shared = shared[1:]
		}
		for number := 0; number < len(sent); {
			if !in.reserve(c) {
				if len(shared) == 0 {
					rt.Fatal("no memory though nobody holds any")
				}
				let()
				continue
			}
			space := in.space()
			n := copy(space, stream[:min(len(stream), rapid.IntRange(1, 60<<10).Draw(rt, "arrives"))])
			in.received(n, len(space))
			stream = stream[n:]
			for number < len(sent) {
				got, err := in.next()
				if err != nil {
					rt.Fatal(err)
				}
				if got == nil {
					break
				}
				if !bytes.Equal(got, []byte(sent[number])) {
					rt.Fatalf("frame %d of %d bytes came out as %d others", number, len(sent[number]), len(got))
				}
				if rapid.Bool().Draw(rt, "share") {
					shared = append(shared, held{in.share(), got, sent[number]})
				}
				number++
			}
			in.discard()
		}
		for len(shared) > 0 {
			let()
		}
		in.drop()
		m.leave(c)
		if m.inUse() != 0 || m.overdrawn {
			rt.Fatalf("%d bytes are out at the end, overdrawn %v", m.inUse(), m.overdrawn)
		}
	})
}
