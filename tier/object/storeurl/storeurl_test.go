package storeurl_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/s3test"
	"github.com/tidemark-io/tidemark/tier/object/storecheck"
	"github.com/tidemark-io/tidemark/tier/object/storeurl"
)

func TestOpenFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a store")
	url := "file://" + strings.ReplaceAll(dir, " ", "%20")
	if s, err := storeurl.Open(t.Context(), url); err == nil {
		t.Fatalf("nothing opens as %T", s)
	}
	if _, err := storeurl.Create(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	s, err := storeurl.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "a/b", strings.NewReader("body"), object.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "a", "b")); string(b) != "body" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestOpenMemIsNewEachTime(t *testing.T) {
	for range 2 {
		s, err := storeurl.Open(t.Context(), "mem://")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(t.Context(), "k", strings.NewReader(""), object.IfAbsent()); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, bad := range []string{
		"", "/dir", "file://dir", "file://dir/x", "file://", "file:dir", "mem://name", "ftp://x", "%zz", "file:///x?y=z",
		"s3://", "s3:///bucket", "s3://bucket:9000/x", "s3://bucket?regoin=x", "s3://bucket?path-style=maybe", "s3://bucket?region=a&region=b",
		"s3://bucket?endpoint=host:9000", "s3://bucket?endpoint=http://host/path", "s3://bucket/a//b", "s3://bucket/../b", "s3://bucket/x#y",
		"s3://bucket?ca=/does/not/exist", "minio://host:9000", "minio://host:9000/", "minio:///bucket", "minio://host/bucket?endpoint=x",
		"minio://host/bucket?tls=perhaps", "minio://host/bucket/a//b", "s3://bu/x?region=r", "s3://Bucket?region=r", "minio://host/b_ucket",
	} {
		if s, err := storeurl.Open(t.Context(), bad); err == nil {
			t.Errorf("%q opens %T", bad, s)
		}
	}
}

// TestNoCredentialsInAURL: they are refused, and what refuses them does not repeat them.
func TestNoCredentialsInAURL(t *testing.T) {
	for _, bad := range []string{
		"ftp://user:secret@host/", "s3://user:secret@bucket/x", "minio://user:secret@host:9000/bucket", "file://secret@/dir",
		"mem://secret@", "s3://bucket?endpoint=http://user:secret@host", "s3://user:secret@bucket/%zz", "s3://user:secret@[bucket/",
	} {
		_, err := storeurl.Open(t.Context(), bad)
		if err == nil {
			t.Errorf("%q opens", bad)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("an error shows the password: %v", err)
		}
	}
}

func TestOpenS3AndMinIO(t *testing.T) {
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	for _, good := range []string{
		"s3://bucket", "s3://bucket/", "s3://bucket/a/folder", "s3://bucket/a?region=eu-central-1&endpoint=http://127.0.0.1:9000&path-style=true",
		"s3://my.bucket/x?endpoint=https://host/", "minio://127.0.0.1:9000/bucket", "minio://host/bucket/a/folder/?tls=true&region=x",
	} {
		if _, err := storeurl.Open(t.Context(), good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	t.Setenv("AWS_REGION", "")
	if _, err := storeurl.Open(t.Context(), "s3://bucket"); err == nil || !strings.Contains(err.Error(), "region") {
		t.Errorf("without a region: %v", err)
	}
}

// TestEachURLReachesItsServer: both schemes find the same objects in the same folder, with and without TLS.
func TestEachURLReachesItsServer(t *testing.T) {
	for _, server := range []*s3test.Server{s3test.Start(t, s3test.Versity), s3test.StartTLS(t, s3test.Versity)} {
		bucket := server.Bucket(t)
		s3, err := storeurl.Open(t.Context(), server.StoreURL("s3", bucket, "a/folder"))
		if err != nil {
			t.Fatal(err)
		}
		minio, err := storeurl.Open(t.Context(), server.StoreURL("minio", bucket, "a"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s3.Put(t.Context(), "k", strings.NewReader("body"), object.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		if b, _, err := object.Read(t.Context(), minio, "folder/k", 10); string(b) != "body" || err != nil {
			t.Errorf("%s: %q, %v", server.URL, b, err)
		}
	}
}

// TestACertificateOfAnUnknownAuthorityIsRefused: without ca= or AWS_CA_BUNDLE nobody knows it.
func TestACertificateOfAnUnknownAuthorityIsRefused(t *testing.T) {
	server := s3test.StartTLS(t, s3test.Versity)
	bucket := server.Bucket(t)
	for _, scheme := range []string{"s3", "minio"} {
		s, err := storeurl.Open(t.Context(), s3test.URL(server.URL, "", scheme, bucket, "x"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Head(t.Context(), "k"); !errors.Is(err, object.ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v", scheme, err)
		}
	}
	t.Setenv("AWS_CA_BUNDLE", server.CAFile)
	for _, scheme := range []string{"s3", "minio"} {
		s, err := storeurl.Open(t.Context(), s3test.URL(server.URL, "", scheme, bucket, "x"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Head(t.Context(), "k"); !errors.Is(err, object.ErrNotExist) {
			t.Errorf("%s with AWS_CA_BUNDLE: %v", scheme, err)
		}
	}
}

// TestABrokerWithoutAccessHearsOfIt: wrong keys and a missing bucket are no unreliable store, and no missing object.
func TestABrokerWithoutAccessHearsOfIt(t *testing.T) {
	server := s3test.Start(t, s3test.Versity)
	bucket := server.Bucket(t)
	for _, scheme := range []string{"s3", "minio"} {
		check := func(bucket string) error {
			s, err := storeurl.Open(t.Context(), server.StoreURL(scheme, bucket, "x"))
			if err != nil {
				t.Fatal(err)
			}
			return storecheck.Quick(t.Context(), s, "check", nil)
		}
		if err := check(bucket); err != nil {
			t.Errorf("%s: %v", scheme, err)
		}
		if err := check(bucket + "-missing"); !errors.Is(err, object.ErrDenied) || errors.Is(err, storecheck.ErrFailed) {
			t.Errorf("%s, a missing bucket: %v", scheme, err)
		}
		t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
		if err := check(bucket); !errors.Is(err, object.ErrDenied) || errors.Is(err, storecheck.ErrFailed) {
			t.Errorf("%s, a wrong key: %v", scheme, err)
		}
		t.Setenv("AWS_SECRET_ACCESS_KEY", s3test.SecretKey)
	}
}
