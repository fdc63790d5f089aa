package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/broker/log"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
)

var errDisk = errors.New("input/output error")

// dead is a log directory on a disk that is gone.
func dead(dir string) []vfs.Rule {
	return []vfs.Rule{{Path: dir, Err: errDisk}, {Path: dir + "/*", Err: errDisk}, {Path: dir + "/*/*", Err: errDisk}}
}

// A start reads nothing before its directories are locked. Another process may be about to stop: what it has written meanwhile, here
// and to the chain, would be missing, and the logs of its newest topics would be taken for strays.
func TestSafety09AStartLocksBeforeItReads(t *testing.T) {
	r := serving(t)
	running, calls := r.e, 0
	r.faults = func(faultstore.Call) faultstore.Fault { calls++; return faultstore.None }
	if err := r.tryOpen(); !errors.Is(err, vfs.ErrLocked) {
		t.Fatalf("a second process opened with %v", err)
	}
	if calls != 0 {
		t.Errorf("%d calls of the store before the lock", calls)
	}
	r.e = running
	r.create("t")
	r.stop()
	r.open()
	r.until("it serves", r.e.Serving)
	r.consistent()
}

// A start that fails leaves the directories as it found them: unlocked, and clean if they were.
func TestAStartThatFailsLeavesNothingBehind(t *testing.T) {
	r := serving(t)
	r.create("t")
	r.stop()
	former := r.committed().Broker(1).Epoch
	for name, spoil := range map[string]func(){
		"no store": func() { r.faults = func(faultstore.Call) faultstore.Fault { return faultstore.Refuse } },
		"no kept file": func() {
			r.rules = []vfs.Rule{{Op: vfs.OpCreate, Path: "/d1/" + keptFile + ".tmp", Err: errDisk}}
		},
	} {
		spoil()
		if err := r.tryOpen(); err == nil {
			t.Fatalf("%s: it opened", name)
		}
		r.faults, r.rules = nil, nil
	}
	r.open()
	r.until("it serves", r.e.Serving)
	if b := r.e.Image().Broker(1); b.CleanStopEpoch != former {
		t.Errorf("registered with the clean stop of epoch %d, not %d", b.CleanStopEpoch, former)
	}
}

// A broker that has lost one of its directories starts with the others, and remembers in one of them what it has seen.
func TestSafety08WhatWasSeenOutlivesADirectory(t *testing.T) {
	r := serving(t)
	r.create("t")
	r.pass(2 * time.Second)
	r.kill()
	r.rules = dead("/d1")
	r.open()
	r.until("it serves", r.e.Serving)
	r.create("u")
	r.pass(2 * time.Second)
	seen := r.e.role.log.tail
	r.kill()
	r.rules = nil
	kept, err := loadKept(r.files, []string{"/d1", "/d2"})
	if err != nil || kept.position != seen {
		t.Errorf("remembered is %+v, %v, and %+v was seen", kept.position, err, seen)
	}
}

// A directory that can't be read may be one of a cluster: the broker is not taken for a new one because of it.
func TestSafety08AnUnreadableDirectoryIsNotANewOne(t *testing.T) {
	r := serving(t, "log.dirs=/d1")
	r.kill()
	for _, key := range r.keys("") {
		_ = r.bucket.Delete(t.Context(), key)
	}
	r.set = []string{"log.dirs=/d1,/d2"}
	r.rules = dead("/d1")
	if err := r.tryOpen(); !errors.Is(err, log.ErrStorage) {
		t.Errorf("opened with %v", err)
	}
	if keys := r.keys(""); len(keys) != 0 {
		t.Errorf("it made %v", keys)
	}
}
