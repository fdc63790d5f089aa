package bucket_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/s3test"
	"github.com/tidemark-io/tidemark/tier/object/storeurl"
)

// BenchmarkUpload is T7: the CPU that an upload from a file takes, beside that of a client that does nothing but send it by
// net/http, through a buffer (copy) or by sendfile, without a checksum.
func BenchmarkUpload(b *testing.B) {
	const size = 64 << 20
	server := s3test.Start(b, s3test.Versity)
	folder := server.Bucket(b)
	name := filepath.Join(b.TempDir(), "segment")
	if err := os.WriteFile(name, pattern(size), 0o600); err != nil {
		b.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	run := func(b *testing.B, put func(key string) error) {
		b.SetBytes(size)
		begin := cpu()
		n := 0
		for b.Loop() {
			if err := put("k" + strconv.Itoa(n%2)); err != nil {
				b.Fatal(err)
			}
			n++
		}
		b.ReportMetric((cpu()-begin).Seconds()/float64(n)/size*1e9, "cpu-s/GB")
	}
	at := server.URL + "/" + folder + "/raw-"
	b.Run("raw-copy", func(b *testing.B) {
		run(b, func(key string) error { return rawPut(b.Context(), at+key, io.NewSectionReader(file, 0, size), size) })
	})
	b.Run("raw-sendfile", func(b *testing.B) {
		run(b, func(key string) error {
			if _, err := file.Seek(0, io.SeekStart); err != nil {
				return err
			}
			return rawPut(b.Context(), at+key, file, size)
		})
	})
	for _, scheme := range []string{"s3", "minio"} {
		s, err := storeurl.Open(b.Context(), server.StoreURL(scheme, folder, scheme))
		if err != nil {
			b.Fatal(err)
		}
		section := io.NewSectionReader(file, 0, size)
		b.Run(scheme, func(b *testing.B) {
			run(b, func(key string) error { _, err := s.Put(b.Context(), key, section, object.Condition{}); return err })
		})
		body := summed{Body: section}
		if _, err := io.Copy(&body.Sums, section); err != nil {
			b.Fatal(err)
		}
		b.Run(scheme+"-summed", func(b *testing.B) {
			run(b, func(key string) error { _, err := s.Put(b.Context(), key, &body, object.Condition{}); return err })
		})
		inFile := filed{summed: &body, file: file}
		b.Run(scheme+"-file", func(b *testing.B) {
			run(b, func(key string) error { _, err := s.Put(b.Context(), key, inFile, object.Condition{}); return err })
		})
		b.Run(scheme+"-parts", func(b *testing.B) {
			run(b, func(key string) error {
				_, err := object.PutInParts(b.Context(), sixteen{s.(object.Parted)}, key, section, object.Condition{})
				return err
			})
		})
		b.Run(scheme+"-parts-summed", func(b *testing.B) {
			run(b, func(key string) error {
				_, err := object.PutInParts(b.Context(), sixteen{s.(object.Parted)}, key, &body, object.Condition{})
				return err
			})
		})
		b.Run(scheme+"-parts-file", func(b *testing.B) {
			run(b, func(key string) error {
				_, err := object.PutInParts(b.Context(), sixteen{s.(object.Parted)}, key, inFile, object.Condition{})
				return err
			})
		})
	}
}

// summed is a body that knows its sums.
type summed struct {
	object.Body
	object.Sums
}

// filed is one that lies in a file.
type filed struct {
	*summed
	file *os.File
}

func (f filed) File() (fd uintptr, offset int64, ok bool) { return f.file.Fd(), 0, true }

// sixteen is a store that takes every body in parts of 16 MiB.
type sixteen struct{ object.Parted }

func (sixteen) PartBytes(int64) int64 { return 16 << 20 }

// rawPut is the client that the others are compared with.
func rawPut(ctx context.Context, u string, body io.Reader, size int64) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, u, body)
	if err != nil {
		return err
	}
	r.ContentLength = size
	r.Body = io.NopCloser(body)
	r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
	keys := aws.Credentials{AccessKeyID: s3test.AccessKey, SecretAccessKey: s3test.SecretKey}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err := signer.SignHTTP(ctx, keys, r, "UNSIGNED-PAYLOAD", "s3", s3test.Region, time.Now()); err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("raw put: %s", answer.Status)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// cpu is what this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
