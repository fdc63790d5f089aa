package miniostore_test

import (
	"testing"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/bucket"
	"github.com/tidemark-io/tidemark/tier/object/miniostore"
	"github.com/tidemark-io/tidemark/tier/object/objecttest"
	"github.com/tidemark-io/tidemark/tier/object/s3test"
)

func open(t *testing.T, s *s3test.Server) object.Store {
	t.Helper()
	store, err := miniostore.Open(bucket.Location{
		Bucket: s.Bucket(t), Prefix: "a/folder", Endpoint: s.URL, Region: s3test.Region, PathStyle: true, CAFile: s.CAFile,
	})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestStoreConforms(t *testing.T) {
	for _, kind := range s3test.Kinds {
		t.Run(string(kind), func(t *testing.T) { objecttest.Run(t, open(t, s3test.Start(t, kind))) })
	}
}

func TestStoreConformsOverTLSWithAPrivateAuthority(t *testing.T) {
	if testing.Short() {
		t.Skip("the same without TLS is enough in short")
	}
	for _, kind := range s3test.Kinds {
		t.Run(string(kind), func(t *testing.T) { objecttest.Run(t, open(t, s3test.StartTLS(t, kind))) })
	}
}
