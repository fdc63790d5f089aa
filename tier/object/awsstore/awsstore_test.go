package awsstore_test

import (
	"testing"

	"github.com/tidemark-io/tidemark/tier/object/awsstore"
	"github.com/tidemark-io/tidemark/tier/object/s3test"
)

func TestStoreConforms(t *testing.T) { s3test.Conforms(t, awsstore.Open) }

func TestStoreConformsOverTLSWithAPrivateAuthority(t *testing.T) {
	s3test.ConformsOverTLS(t, awsstore.Open)
}
