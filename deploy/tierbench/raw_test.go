package tierbench

import (
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/s3test"
)

// What the broker does by its defaults, and the plain client, too.
const (
	rangeBytes   = 8 << 20
	rangesAtOnce = 5 // of 32 MiB ahead, one of them just used up
	putsAtOnce   = 4
)

// objects are a topic's segments in the bucket, by partition and offset.
func (r *broker) objects(topic string) (list []object.Info) {
	r.b.Helper()
	for info, err := range r.store.List(r.b.Context(), "topics/"+topic+".", "") {
		if err != nil {
			r.b.Fatal(err)
		}
		if strings.HasSuffix(info.Key, ".log") {
			list = append(list, info)
		}
	}
	return list
}

// rawGet reads objects by ranged gets, some at a time, into one buffer each.
func (r *broker) rawGet(objects []object.Info) (n int64) {
	r.b.Helper()
	type part struct {
		object.Info
		at int64
	}
	parts := make(chan part)
	var readers sync.WaitGroup
	for range rangesAtOnce {
		readers.Go(func() {
			buf := make([]byte, rangeBytes)
			for p := range parts {
				if err := r.plain.get(r.b, p.Key, p.at, buf[:min(rangeBytes, p.Size-p.at)]); err != nil {
					r.b.Error(err)
				}
			}
		})
	}
	for _, o := range objects {
		for at := int64(0); at < o.Size; at += rangeBytes {
			parts <- part{o, at}
		}
		n += o.Size
	}
	close(parts)
	readers.Wait()
	return n
}

// plainClient gets objects as anybody would: by minio-go with the transport that it brings, and nothing of the broker's.
type plainClient struct {
	minio.Core
	bucket string
}

func newPlainClient(b testing.TB, server *s3test.Server, bucket string) plainClient {
	b.Helper()
	u, err := url.Parse(server.URL)
	if err != nil {
		b.Fatal(err)
	}
	core, err := minio.NewCore(u.Host, &minio.Options{
		Creds: credentials.NewEnvAWS(), Secure: u.Scheme == "https", Region: s3test.Region, BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		b.Fatal(err)
	}
	return plainClient{*core, bucket}
}

func (c plainClient) get(b testing.TB, key string, at int64, buf []byte) error {
	var o minio.GetObjectOptions
	if err := o.SetRange(at, at+int64(len(buf))-1); err != nil {
		return err
	}
	body, _, _, err := c.GetObject(b.Context(), c.bucket, prefix+"/"+key, o)
	if err != nil {
		return err
	}
	_, err = io.ReadFull(body, buf)
	if closing := body.Close(); err == nil {
		err = closing
	}
	return err
}

// segments are the files of a partition's log, oldest first, without the one that is written.
func (r *broker) segments(topic string, partition int32) []string {
	r.b.Helper()
	files, err := filepath.Glob(filepath.Join(r.Data, "logs", topic+"-"+strconv.Itoa(int(partition)), "*.log"))
	if err != nil || len(files) == 0 {
		r.b.Fatal("no segments of ", topic, err)
	}
	slices.Sort(files)
	return files[:len(files)-1]
}

// file is a file as a body.
type file struct {
	*os.File
	size int64
}

func (f file) Size() int64 { return f.size }

// rawPut puts a file to a new key.
func (r *broker) rawPut(name, key string) (n int64, took time.Duration) {
	r.b.Helper()
	f, err := os.Open(name)
	if err != nil {
		r.b.Error(err)
		return 0, 0
	}
	defer f.Close()
	info, err := f.Stat()
	begun := time.Now()
	if err == nil {
		_, err = r.store.Put(r.b.Context(), key, file{f, info.Size()}, object.Condition{})
	}
	if err != nil {
		r.b.Error(err)
		return 0, 0
	}
	return info.Size(), time.Since(begun)
}

func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
