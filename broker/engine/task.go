package engine

import (
	"context"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
)

// A Task is work that may block: a call to the object store, an fsync, a log's recovery. The engine never does such work
// itself; it hands it out through Ready, whoever drives it runs it where it likes (a goroutine in the shell, inline in the
// simulator), and brings what came of it back to Step.
type Task struct {
	Lane Lane
	Run  func(ctx context.Context) Completion
}

// Completion is what a task found out; it is run by Step and may change the engine.
type Completion func(now time.Time)

// Lane names what a task works on. Tasks of one lane are handed out one at a time, each after the completion of the one
// before, but for those of LaneTier and LaneCold, of which several are out.
type Lane int8

// The lanes.
const (
	LaneLease    Lane = iota // the controller's lease object
	LaneChain                // the metadata chain's tail
	LaneSnapshot             // its snapshots, and what lies behind them
	LaneLoad                 // reading internal partitions into coordinators
	LaneDisk                 // flush, checkpoints, retention, deletion
	LaneScrub                // verifying sealed segments
	LaneTier                 // uploads and what else partitions do in the object store
	LaneCold                 // reads of what is in the object store alone
	laneCount
)

// String is the lane's name in logs and metrics.
func (l Lane) String() string {
	return [...]string{"lease", "chain", "snapshot", "load", "disk", "scrub", "tier", "cold"}[l]
}

// lanes holds the tasks that wait and those that are out.
type lanes struct {
	waiting [laneCount][]Task
	busy    [laneCount]int
	width   [laneCount]int // how many may be out; 0 is one
}

// laneCauses say what the requests to the store are for that tasks of a lane make; those of the tier say it themselves.
var laneCauses = map[Lane]object.Cause{
	LaneLease: {Kind: object.CauseLease}, LaneChain: {Kind: object.CauseMetadata}, LaneSnapshot: {Kind: object.CauseMetadata},
}

// add puts a task behind those of its lane.
func (l *lanes) add(lane Lane, work func(ctx context.Context) Completion) {
	run := work
	if cause, ok := laneCauses[lane]; ok {
		run = func(ctx context.Context) Completion { return work(object.WithCause(ctx, cause)) }
	}
	l.waiting[lane] = append(l.waiting[lane], Task{Lane: lane, Run: run})
}

// idle tells whether a lane has nothing out and nothing waiting.
func (l *lanes) idle(lane Lane) bool { return l.busy[lane] == 0 && len(l.waiting[lane]) == 0 }

// room tells whether one more task would be out at once.
func (l *lanes) room(lane Lane) bool {
	return l.busy[lane]+len(l.waiting[lane]) < max(l.width[lane], 1)
}

// take removes the tasks that may start now.
func (l *lanes) take() []Task {
	var ready []Task
	for lane := range l.waiting {
		room := max(max(l.width[lane], 1)-l.busy[lane], 0) // a lane that became narrower may have more out
		n := min(room, len(l.waiting[lane]))
		ready = append(ready, l.waiting[lane][:n]...)
		l.waiting[lane] = l.waiting[lane][n:]
		l.busy[lane] += n
	}
	return ready
}

// done makes room in a lane for its next task.
func (l *lanes) done(lane Lane) { l.busy[lane]-- }
