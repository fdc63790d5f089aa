package fsck_test

import (
	"testing"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// What lies behind the damage of a manifest counts, too: what was deleted does not come back, and no former leader goes on.
func TestARebuildKnowsWhatTheEntriesBehindADamageSay(t *testing.T) {
	for name, damage := range map[string]func(r *rig){
		"an entry is gone":    func(r *rig) { r.delete(r.keys("/manifest/")[1]) },
		"an entry is damaged": func(r *rig) { key := r.keys("/manifest/")[1]; r.put(key, r.get(key)[1:]) },
		"all but a snapshot is gone": func(r *rig) {
			entries := r.keys("/manifest/")
			if err := r.Manifest.Snapshot(t.Context(), r.now); err != nil {
				t.Fatal(err)
			}
			r.delete(entries...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.Upload(6, 10)
			r.Drop(45)
			r.Lead()
			r.Commit() // a leader that has uploaded nothing yet
			last := r.live()
			damage(r)
			plan := r.plan()
			if plan.LogStart != 45 || plan.Epoch != 1 || plan.Segments[0].Name != last[0].Name || len(plan.Lost) > 0 {
				t.Errorf("planned is %+v", plan)
			}
			if r.rebuild().LogStart != wire.Offset(45) {
				t.Errorf("the log starts at %d", r.Manifest.State().LogStart)
			}
		})
	}
}
