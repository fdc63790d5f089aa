package miniostore_test

import (
	"context"
	"testing"

	"github.com/tidemark-io/tidemark/tier/object/bucket"
	"github.com/tidemark-io/tidemark/tier/object/miniostore"
	"github.com/tidemark-io/tidemark/tier/object/s3test"
)

func open(_ context.Context, l bucket.Location) (*bucket.Store, error) { return miniostore.Open(l) }

func TestStoreConforms(t *testing.T) { s3test.Conforms(t, open) }

func TestStoreConformsOverTLSWithAPrivateAuthority(t *testing.T) { s3test.ConformsOverTLS(t, open) }
