// Package miniostore is the object store in MinIO, or in anything that speaks S3, by way of MinIO's client.
//
// Credentials come from its usual chain alone: the environment (AWS_* and MINIO_*), shared files (AWS's and mc's), the
// machine's role. The client's retries are off: it would send a conditional put twice and report our own success as a failure.
package miniostore

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/bucket"
)

// defaultRegion is MinIO's own. Without a region the client would ask for it before its first request.
const defaultRegion = "us-east-1"

// Open prepares the store at a location, whose endpoint must be there. It does not ask the store for anything.
func Open(l bucket.Location) (*bucket.Store, error) {
	conns, err := bucket.Connect(l.CAFile)
	if err != nil {
		return nil, err
	}
	endpoint, err := url.Parse(l.Endpoint)
	if err != nil || endpoint.Host == "" {
		return nil, fmt.Errorf("%q is no endpoint", l.Endpoint)
	}
	region := l.Region
	if region == "" {
		region = defaultRegion
	}
	lookup := minio.BucketLookupDNS
	if l.PathStyle {
		lookup = minio.BucketLookupPath
	}
	core, err := minio.NewCore(endpoint.Host, &minio.Options{
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.EnvMinio{}, &credentials.FileAWSCredentials{}, &credentials.FileMinioClient{},
			&credentials.IAM{Client: &http.Client{Transport: conns.Transport()}},
		}),
		Secure:       endpoint.Scheme == "https",
		Transport:    conns,
		Region:       region,
		BucketLookup: lookup,
		MaxRetries:   1, // tries, that is
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", l.Endpoint, err)
	}
	return bucket.New(&client{core, l.Bucket}, conns, l)
}

// client is a bucket.Client.
type client struct {
	core   *minio.Core
	bucket string
}

func (c *client) Get(ctx context.Context, key string, r object.Range) (*object.Object, error) {
	var o minio.GetObjectOptions
	if !r.Whole() {
		o.Set("Range", bucket.HTTPRange(r))
	}
	body, info, header, err := c.core.GetObject(ctx, c.bucket, key, o)
	if err != nil {
		return nil, err
	}
	size, err := bucket.WholeSize(header.Get("Content-Range"), info.Size)
	if err != nil {
		body.Close()
		return nil, err
	}
	got := infoOf(info)
	got.Size = size
	return &object.Object{Info: got, Body: body}, nil
}

func (c *client) Head(ctx context.Context, key string) (object.Info, error) {
	info, err := c.core.StatObject(ctx, c.bucket, key, minio.StatObjectOptions{})
	if err != nil {
		return object.Info{}, err
	}
	return infoOf(info), nil
}

func (c *client) Put(ctx context.Context, key string, body bucket.Payload, cond object.Condition) (object.Token, error) {
	o := options(cond)
	o.UserMetadata = map[string]string{sumHeader: sum(body.CRC32C)}
	out, err := c.core.PutObject(ctx, c.bucket, key, body, body.Size, "", "", o)
	return object.Token(out.ETag), err
}

func (c *client) Delete(ctx context.Context, key string) error {
	return c.core.RemoveObject(ctx, c.bucket, key, minio.RemoveObjectOptions{})
}

func (c *client) List(ctx context.Context, prefix, after string) iter.Seq2[object.Info, error] {
	return func(yield func(object.Info, error) bool) {
		o := minio.ListObjectsOptions{Prefix: prefix, StartAfter: after, Recursive: true, FetchOwner: new(bool)}
		for info := range c.core.ListObjectsIter(ctx, c.bucket, o) {
			if !yield(infoOf(info), info.Err) || info.Err != nil {
				return
			}
		}
	}
}

func (c *client) BeginUpload(ctx context.Context, key string) (string, error) {
	o := options(object.Condition{})
	o.UserMetadata = map[string]string{"X-Amz-Checksum-Algorithm": "CRC32C"}
	return c.core.NewMultipartUpload(ctx, c.bucket, key, o)
}

func (c *client) PutPart(ctx context.Context, key, upload string, number int, body bucket.Payload) (object.Token, error) {
	out, err := c.core.PutObjectPart(ctx, c.bucket, key, upload, number, body, body.Size, minio.PutObjectPartOptions{
		DisableContentSha256: true, CustomHeader: http.Header{sumHeader: {sum(body.CRC32C)}},
	})
	return object.Token(out.ETag), err
}

func (c *client) CompleteUpload(ctx context.Context, key, upload string, parts []object.Part, cond object.Condition) (object.Token, error) {
	done := make([]minio.CompletePart, len(parts))
	for i, p := range parts {
		done[i] = minio.CompletePart{PartNumber: p.Number, ETag: string(p.Token), ChecksumCRC32C: sum(p.CRC32C)}
	}
	out, err := c.core.CompleteMultipartUpload(ctx, c.bucket, key, upload, done, options(cond))
	return object.Token(out.ETag), err
}

func (c *client) AbortUpload(ctx context.Context, key, upload string) error {
	return c.core.AbortMultipartUpload(ctx, c.bucket, key, upload)
}

func (c *client) Uploads(ctx context.Context, prefix string) iter.Seq2[bucket.Upload, error] {
	return func(yield func(bucket.Upload, error) bool) {
		for keyMarker, uploadMarker := "", ""; ; {
			out, err := c.core.ListMultipartUploads(ctx, c.bucket, prefix, keyMarker, uploadMarker, "", 0)
			if err != nil {
				yield(bucket.Upload{}, err)
				return
			}
			for _, u := range out.Uploads {
				if !yield(bucket.Upload{Key: u.Key, ID: u.UploadID, Begun: u.Initiated}, nil) {
					return
				}
			}
			if !out.IsTruncated {
				return
			}
			if keyMarker, uploadMarker = out.NextKeyMarker, out.NextUploadIDMarker; keyMarker == "" {
				yield(bucket.Upload{}, bucket.ErrNoNext)
				return
			}
		}
	}
}

func (c *client) Status(err error) (status int, code string) {
	if answer, ok := errors.AsType[minio.ErrorResponse](err); ok {
		return answer.StatusCode, answer.Code
	}
	return 0, ""
}

// options are those of a put. The hash of a body is left out of its signature; see package bucket.
func options(cond object.Condition) minio.PutObjectOptions {
	o := minio.PutObjectOptions{DisableContentSha256: true}
	switch cond.Kind {
	case object.Absent:
		o.SetMatchETagExcept("*")
	case object.Match:
		o.SetMatchETag(string(cond.Token))
	}
	return o
}

func infoOf(i minio.ObjectInfo) object.Info {
	return object.Info{Key: i.Key, Size: i.Size, ModTime: i.LastModified, Token: object.Token(i.ETag)}
}

const sumHeader = "X-Amz-Checksum-Crc32c"

// sum is a CRC32C as S3 writes it.
func sum(crc uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
}
