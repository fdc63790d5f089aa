package tier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/plan"
)

// roundsMax bounds how often one look plans: what it does may lead to more, as a seal to a copy.
const roundsMax = 4

// look finds out what there is to do for a partition, does what is quick, and leaves a copy to an upload. What can't be deleted or
// tidied up, as in a bucket where this broker may not delete, holds up no copy; nor does a page of the manifest that can't be read.
func (p *partition) look(ctx context.Context, now time.Time, confirmed, closing bool) (out outcome) {
	out.release, out.err = p.open(ctx, now)
	if out.err != nil && (final(out.err) || p.Start != StartHere) {
		return out
	}
	for range roundsMax {
		v, err := p.view(ctx, now, confirmed, closing)
		if err != nil {
			out.err = err
			return out
		}
		tasks := plan.Plan(now, v)
		out.wake = plan.NextWake(now, v)
		if unstable(v.Local) {
			out.wake = soonest(out.wake, now.Add(unstableLook))
		}
		var done int
		out.copy, done, err = p.do(ctx, now, tasks)
		if err != nil {
			out.err = errors.Join(p.unread, err)
			return out
		}
		if out.copy != nil {
			out.copySize = sizeOf(v, out.copy.Segment)
			break
		}
		if done == 0 {
			break
		}
	}
	if !p.settled {
		return out
	}
	if !closing { // a stop has no time for it, and is not spoilt by it
		err := errors.Join(p.unread, p.upkeep(ctx, now, &out))
		if final(err) || err != nil && out.copy == nil {
			out.copy, out.err = nil, err
			return out
		}
	}
	// Before the stop nobody can say so: a record may be appended before this job is back.
	s := p.m.State()
	out.whole = closing && p.closed(s) && s.End == p.Log.EndOffset()
	return out
}

// unstableLook is how often a sealed segment is looked at that is not stable yet: nobody tells when its last transaction ends, or when
// the last follower has it.
const unstableLook = 2 * time.Second

// unstable tells whether a sealed segment waits for that.
func unstable(l plan.Local) bool {
	n := len(l.Segments) - 1
	return n > 0 && l.Segments[n-1].Next > l.LastStableOffset
}

// soonest of two times, of which the first may be zero, which is never.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() {
		return b
	}
	return earlierOf(a, b)
}

func sizeOf(v plan.View, base wire.Offset) int64 {
	for _, s := range v.Local.Segments {
		if s.Base == base {
			return s.Size
		}
	}
	return 0
}

// do carries tasks out in their order, but for the copies, of which it returns the first: nothing else of a plan depends on them.
// done counts the others.
func (p *partition) do(ctx context.Context, now time.Time, tasks []plan.Task) (copied *plan.Task, done int, err error) {
	var failed error
	for i := range tasks {
		t := &tasks[i]
		if t.Kind == plan.Copy {
			if copied == nil {
				copied = t
			}
			continue
		}
		if failed != nil && t.Kind != plan.RecordLost { // without it the copy behind it can't be made
			continue
		}
		p.logger.Debug("tier", "task", taskNames[t.Kind], "offset", t.Offset, "why", t.Why)
		if err := p.doOne(ctx, now, t); err != nil {
			failed = fmt.Errorf("%s: %w", taskNames[t.Kind], err)
			if final(err) || copied == nil && t.Kind != plan.Drop {
				return nil, done, failed
			}
			continue
		}
		done++
	}
	if copied != nil {
		return copied, done, nil // neither a drop nor what comes behind a copy holds it up: they are told of when there is none
	}
	return nil, done, failed
}

// taskNames are the tasks in logs and errors.
var taskNames = map[plan.Kind]string{
	plan.MoveStart: "move log start", plan.DeleteLocal: "delete local segments", plan.Seal: "seal segment",
	plan.RecordStart: "record log start", plan.RecordLost: "record lost offsets", plan.Drop: "drop segments",
	plan.Page: "make page", plan.DeleteObjects: "delete objects", plan.Close: "close",
}

func (p *partition) doOne(ctx context.Context, now time.Time, t *plan.Task) error {
	switch t.Kind {
	case plan.MoveStart:
		p.at(pointMoveStart)
		// Retention by size counts what is here: a power loss must not take that after what it pushed out.
		if err := p.Log.Flush(); err != nil {
			return err
		}
		return p.Log.AdvanceStart(t.Offset)
	case plan.DeleteLocal:
		p.at(pointDeleteLocal)
		_, err := p.Log.Retain(now)
		p.at(pointDeletedLocal)
		return err
	case plan.Seal:
		p.at(pointSeal)
		return p.Log.Roll(now)
	case plan.RecordStart:
		return p.commitAndTell(ctx, now, pointStart, &manifest.StartRecord{LogStart: t.Offset})
	case plan.RecordLost:
		if err := p.forgotten(ctx, t.Offset, t.End); err != nil {
			return err
		}
		p.logger.Error("records are lost: neither the log nor the bucket has them", "first_offset", t.Offset, "next_offset", t.End)
		return p.commitAndTell(ctx, now, pointLost, &manifest.LostRecord{Start: t.Offset, End: t.End})
	case plan.Drop:
		record, err := p.m.MakeDrop(p.cause(ctx, object.CauseManifest), now, t.Count)
		if err != nil {
			p.oldest = oldestSegments{} // the page can't be read any more: the next look does without it
		}
		if err != nil || record == nil {
			return err
		}
		return p.commit(ctx, now, pointDrop, record)
	case plan.Page:
		p.at(pointPage)
		record, err := p.m.MakePage(p.cause(ctx, object.CauseManifest), p.Epoch)
		if err != nil || record == nil {
			return err
		}
		return p.commit(ctx, now, pointPage, record)
	case plan.DeleteObjects:
		return p.deleteDropped(ctx, now, t.Count)
	case plan.Close:
		return p.commit(ctx, now, pointClose, &manifest.CloseRecord{End: t.Offset})
	}
	return fmt.Errorf("unknown task %d", t.Kind)
}

// commitAndTell is commit for records that move the tiered end.
func (p *partition) commitAndTell(ctx context.Context, now time.Time, point string, record manifest.Record) error {
	if err := p.commit(ctx, now, point, record); err != nil {
		return err
	}
	p.tell()
	return nil
}
