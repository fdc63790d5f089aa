package network

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// turnBytes is what is sent in a turn at most: about a tenth of a millisecond.
const turnBytes = 256 << 10

// turns are for answers out of the cache's memory, which the kernel copies for as long as the client keeps up: for a third of a millisecond a
// megabyte no other goroutine runs there, and the scheduler looks at the network only when none can run. So a few readers of cold
// data would keep everybody else waiting for tens of milliseconds. They send by turns, some at a time, and the network is looked at after each.
type turns struct {
	places chan *look // those that nobody has
}

func newTurns(places int) *turns {
	return &turns{newLooks(places)}
}

// begin waits for a place, and end gives it back: nobody keeps one that waits for its client.
func (t *turns) begin() *look { return <-t.places }

func (t *turns) end(l *look) { t.places <- l }

// next ends a turn and begins another one, behind all who wait for theirs and whoever the network has woken meanwhile.
func (t *turns) next(l *look) *look {
	l.yield()
	t.end(l)
	return t.begin()
}

// close is for when nobody takes turns any more.
func (t *turns) close() {
	for range len(t.places) {
		(<-t.places).close()
	}
}

// look has the scheduler look at the network, as it waits for an event there that it has caused itself.
type look struct {
	event *os.File              // an eventfd; nil where none can be had: nothing is looked at then
	raw   syscall.RawConn       // of event
	cause func(fd uintptr) bool // made once
	begun bool                  // the event is caused
}

// newLooks is a channel with n of them.
func newLooks(n int) chan *look {
	looks := make(chan *look, n)
	for range n {
		looks <- newLook()
	}
	return looks
}

func newLook() *look {
	l := &look{}
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return l
	}
	l.event = os.NewFile(uintptr(fd), "eventfd")
	if l.raw, err = l.event.SyscallConn(); err != nil {
		l.close()
		return l
	}
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	l.cause = func(fd uintptr) bool {
		if l.begun {
			return true
		}
		l.begun = true
		_, err := unix.Write(int(fd), one)
		return err != nil // then nothing would wake us
	}
	return l
}

// yield lets whoever the network has woken run. It is for one goroutine at a time.
func (l *look) yield() {
	l.wait()
	runtime.Gosched() // who was woken with us is in line by now
}

func (l *look) wait() {
	if l.event != nil {
		l.begun = false
		_ = l.raw.Read(l.cause) // fails only when it is closed
	}
}

func (l *look) close() {
	if l.event != nil {
		_ = l.event.Close() // it holds nothing
		l.event = nil
	}
}
