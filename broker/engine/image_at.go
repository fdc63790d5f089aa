package engine

import (
	"context"
	"time"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/cluster"
)

// ReadImageAt reads the cluster's metadata as it was at a time, by the clocks of its controllers: chain.ErrTooOld where that was
// trimmed away.
func ReadImageAt(ctx context.Context, store object.Store, at time.Time) (*metadata.Image, error) {
	fold := &imageFold{image: metadata.Empty()}
	_, err := chain.ReadAt(ctx, store, cluster.MetadataPrefix, at, fold)
	return fold.image, err
}
