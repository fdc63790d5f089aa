package sim

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tidemark-io/tidemark/broker/vfs"
)

// crash is how a run of a broker ends when nobody asked it to stop. It is also what the disk and the store panic with.
type crash int8

const (
	processCrash crash = iota // killed: the page cache is kept
	powerLoss                 // what was not synced may be gone
)

func (c crash) String() string {
	if c == powerLoss {
		return "power loss"
	}
	return "process crash"
}

// disk is the file system of one broker over all its runs.
type disk struct {
	trace  *trace
	random *rand.Rand
	now    func() time.Time

	mem        *vfs.Mem
	fs         *vfs.Fault // what the broker sees
	full       bool
	soundSince time.Time // when it was full or failing the last time
	failing    string    // log directory whose writes fail; empty: none

	crashIn   int // calls from now on until the crash; 0: none
	crashKind crash
	left      *vfs.Mem // what the crash left
}

func newDisk(c *cluster) *disk {
	d := &disk{trace: c.trace, random: c.stream("disk"), now: func() time.Time { return c.clock.now }, mem: vfs.NewMem()}
	d.mem.SetClock(d.now)
	d.mount(d.mem)
	return d
}

// mount makes mem the disk.
func (d *disk) mount(mem *vfs.Mem) {
	d.mem, d.fs, d.left, d.crashIn = mem, vfs.NewFault(mem), nil, 0
	d.setRules()
}

var errBroken = errors.New("input/output error")

// wipe replaces the disk by an empty one.
func (d *disk) wipe() {
	mem := vfs.NewMem()
	mem.SetClock(d.now)
	d.failing = ""
	d.mount(mem)
	d.setFull(d.full)
}

// setRules makes every call pass through called, and those of a failing directory fail.
func (d *disk) setRules() {
	rules := []vfs.Rule{{Hook: d.called}}
	if d.failing != "" {
		for _, op := range []vfs.Op{vfs.OpWrite, vfs.OpSync, vfs.OpCreate} {
			rules = append([]vfs.Rule{{Op: op, Path: d.failing + "/*/*", Hook: d.called, Err: errBroken}}, rules...)
		}
	}
	d.fs.SetRules(rules...)
}

// called is asked before each call.
func (d *disk) called(call vfs.Call) {
	d.trace.add(diskLines, "%s", call)
	if d.crashIn == 0 {
		return
	}
	if d.crashIn--; d.crashIn == 0 {
		d.left = d.leave(d.crashKind)
		panic(d.crashKind)
	}
}

// leave is what a crash at this moment leaves.
func (d *disk) leave(kind crash) *vfs.Mem {
	if kind == powerLoss {
		return d.mem.CrashClone(d.random)
	}
	return d.mem.ProcessCrashClone()
}

// crashed replaces the disk by what the crash left; the former one may be written to by nobody who matters.
func (d *disk) crashed(kind crash) {
	left := d.left
	if left == nil {
		left = d.leave(kind)
	}
	d.failing = ""
	d.mount(left)
	d.setFull(d.full)
}

// armCrash lets the n-th call from now on be the last.
func (d *disk) armCrash(n int, kind crash) { d.crashIn, d.crashKind = n, kind }

// paused runs f without a crash in it.
func (d *disk) paused(f func()) {
	n := d.crashIn
	d.crashIn = 0
	f()
	d.crashIn = n
}

// diskBytes is the room on a disk that is not full.
const diskBytes = 1 << 40

// setFull leaves almost no room, or much.
func (d *disk) setFull(full bool) {
	if d.full {
		d.soundSince = d.now()
	}
	if d.full = full; !full {
		d.mem.SetSpace(diskBytes)
		return
	}
	usage, err := d.mem.Usage("/")
	if err != nil {
		panic("sim: the root directory is gone: " + err.Error())
	}
	d.mem.SetSpace(usage.Total - usage.Free + int64(d.random.IntN(3000)))
}

// sound tells whether nothing was wrong with the disk since a moment.
func (d *disk) sound(since time.Time) bool {
	return !d.full && d.failing == "" && d.soundSince.Before(since)
}

// setFailing makes a log directory's disk fail, or none.
func (d *disk) setFailing(dir string) {
	if d.failing != "" {
		d.soundSince = d.now()
	}
	d.failing = dir
	d.setRules()
}
