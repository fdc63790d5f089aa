package bucket_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/bucket"
	"github.com/tidemark-io/tidemark/tier/object/s3test"
	"github.com/tidemark-io/tidemark/tier/object/storeurl"
)

// sweepAt sweeps the uploads of a server, by each client.
func sweepAt(t *testing.T, answer http.HandlerFunc, check func(scheme string, n int, err error)) {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", s3test.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3test.SecretKey)
	t.Setenv("AWS_REGION", s3test.Region)
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	for _, scheme := range []string{"s3", "minio"} {
		s, err := storeurl.Open(t.Context(), s3test.URL(server.URL, "", scheme, "bucket", scheme))
		if err != nil {
			t.Fatal(err)
		}
		n, err := object.SweepUploads(t.Context(), s, "k/", time.Now())
		check(scheme, n, err)
	}
}

// TestFM54AStoreWithoutAListOfUploadsHasNone: there is nothing to sweep that anybody could find.
func TestFM54AStoreWithoutAListOfUploadsHasNone(t *testing.T) {
	sweepAt(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotImplemented)
		fmt.Fprint(w, "<Error><Code>NotImplemented</Code></Error>")
	}, func(scheme string, n int, err error) {
		if n != 0 || err != nil {
			t.Errorf("%s: %d, %v", scheme, n, err)
		}
	})
}

// TestAListOfUploadsThatDoesNotSayHowItGoesOnEnds: the same page would come for ever.
func TestAListOfUploadsThatDoesNotSayHowItGoesOnEnds(t *testing.T) {
	pages := 0
	sweepAt(t, func(w http.ResponseWriter, _ *http.Request) {
		pages++
		fmt.Fprintf(w, "<ListMultipartUploadsResult><IsTruncated>%v</IsTruncated></ListMultipartUploadsResult>", pages%3 != 0)
	}, func(scheme string, _ int, err error) {
		if !errors.Is(err, bucket.ErrNoNext) || pages != 1 {
			t.Errorf("%s: %v after %d pages", scheme, err, pages)
		}
		pages = 0
	})
}
