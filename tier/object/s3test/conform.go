package s3test

import (
	"context"
	"testing"

	"github.com/tidemark-io/tidemark/tier/object/bucket"
	"github.com/tidemark-io/tidemark/tier/object/objecttest"
)

// Open is how a client of S3 is made for a bucket.
type Open func(ctx context.Context, l bucket.Location) (*bucket.Store, error)

// Conforms tries a client on every server.
func Conforms(t *testing.T, open Open) {
	t.Helper()
	conforms(t, open, Start)
}

// ConformsOverTLS does so where the servers' certificates come from an authority that nobody else knows.
func ConformsOverTLS(t *testing.T, open Open) {
	t.Helper()
	if testing.Short() {
		t.Skip("the same without TLS is enough in short")
	}
	conforms(t, open, StartTLS)
}

func conforms(t *testing.T, open Open, start func(testing.TB, Kind) *Server) {
	t.Helper()
	for _, kind := range Kinds {
		t.Run(string(kind), func(t *testing.T) {
			s := start(t, kind)
			store, err := open(t.Context(), bucket.Location{
				Bucket: s.Bucket(t), Prefix: "a/folder", Endpoint: s.URL, Region: Region, PathStyle: true, CAFile: s.CAFile,
			})
			if err != nil {
				t.Fatal(err)
			}
			objecttest.Run(t, store)
		})
	}
}
