package fsck

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
)

// commitTime is how long an upload may wait for its entry before it is strange that it has none.
const commitTime = time.Hour

// checkUnnamed looks at what the manifest does not name: uploads under way, orphans, or signs that the manifest was lost or
// rolled back.
func (p *partition) checkUnnamed(ctx context.Context) error {
	if !p.whole {
		return nil
	}
	orphans := p.finding(KindOrphan, false, "")
	orphans.Key = ""
	ahead := aheadOf{bases: map[wire.Offset]bool{}}
	for _, key := range p.order {
		if p.named[key] {
			continue
		}
		info := p.objects[key]
		name, kind, _ := manifest.ParseKey(key[len(p.prefix)+1:])
		switch age := p.age(info); {
		case name.Epoch < p.state.LeaderEpoch():
			// Nobody can name it any more (safety rule 22). The grace is for readers of states that did.
			if age <= p.grace() {
				p.sum.Pending++
				continue
			}
			if orphans.Key == "" {
				orphans.Key = key
			}
			orphans.Count++
			orphans.Bytes += info.Size
			if p.Repair {
				if err := p.delete(ctx, key); err != nil {
					return err
				}
			}
		default:
			p.sum.Pending++
			if kind == manifest.LogObject && name.Base >= p.state.End {
				ahead.add(name, age)
			}
		}
	}
	if orphans.Count > 0 {
		orphans.Text = fmt.Sprintf("%d objects that no manifest names, nor ever will", orphans.Count)
		orphans.Advice = "the partition's leader deletes them in time, and so does --repair"
		if p.Repair {
			orphans.Repaired = "deleted"
		}
		p.found(orphans)
	}
	p.checkAhead(ahead)
	return nil
}

// age is how long ago an object was put, zero where that is not known.
func (p *partition) age(info object.Info) time.Duration {
	if info.ModTime.IsZero() {
		return 0
	}
	return p.storeNow().Sub(info.ModTime)
}

func (p *partition) delete(ctx context.Context, key string) error {
	if err := p.Store.Delete(ctx, key); err != nil {
		return fmt.Errorf("delete orphan %s: %w", key, err)
	}
	return nil
}

// aheadOf are segments behind the manifest's end whose leader may still commit them. It uploads one after the other, so that two that
// begin at different offsets say that a commit is gone.
type aheadOf struct {
	bases map[wire.Offset]bool
	first manifest.Name
	last  wire.Offset
	old   bool
}

func (a *aheadOf) add(n manifest.Name, age time.Duration) {
	if len(a.bases) == 0 {
		a.first = n
	}
	a.bases[n.Base] = true
	a.last = max(a.last, n.Base)
	a.old = a.old || age > commitTime
}

func (p *partition) checkAhead(a aheadOf) {
	if len(a.bases) < 2 && !a.old {
		return
	}
	text := fmt.Sprintf("the manifest ends at %d with leader epoch %d, and %d segments lie behind it: the newest entries of its chain "+
		"are gone, or were rolled back", p.state.End, p.state.LeaderEpoch(), len(a.bases))
	if p.state.Position.Number == 0 {
		text = fmt.Sprintf("there are %d segments and no manifest: its chain was deleted, or the first commit is still to come", len(a.bases))
	}
	f := p.finding(KindManifest, true, text)
	f.Key, f.Count, f.Start, f.End = p.m.Key(a.first, manifest.LogObject), len(a.bases), a.first.Base, a.last
	f.Advice = "if no leader is at work, `tidemark tier rebuild-manifest` writes a manifest anew from the objects"
	p.found(f)
}
