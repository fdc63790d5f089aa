package manifest

import (
	"context"
	"fmt"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/object"
)

// Salvaged is what can be read of a manifest whose chain is damaged.
type Salvaged struct {
	LeaderEpoch wire.LeaderEpoch // the highest that has written any of it; NoLeaderEpoch where there is nothing
	State       *State           // of the newest snapshot that is sound; nil without one
	Records     []Record         // of the entries behind State that are sound, which need not follow each other
}

// Salvage reads what there is of the manifest under prefix, to make another one of it.
func Salvage(ctx context.Context, s object.Store, prefix string) (Salvaged, error) {
	found := Salvaged{LeaderEpoch: wire.NoLeaderEpoch}
	c, err := chain.Salvage(ctx, s, prefix+chainFolder)
	if err != nil {
		return found, fmt.Errorf("salvage manifest: %w", err)
	}
	if state, err := decodeState(c.State); c.State != nil && err == nil {
		found.State, found.LeaderEpoch = state, wire.LeaderEpoch(c.At.Epoch-1)
	}
	for _, e := range c.Entries {
		if found.State != nil && e.Number <= c.At.Number {
			continue
		}
		found.LeaderEpoch = max(found.LeaderEpoch, wire.LeaderEpoch(e.Epoch-1))
		for _, raw := range e.Records {
			if r, err := UnmarshalRecord(raw); err == nil {
				found.Records = append(found.Records, r)
			}
		}
	}
	return found, nil
}
