// Package awsstore is the object store in S3, or in anything that speaks it, by way of the AWS SDK.
//
// Credentials come from the SDK's usual chain alone: environment, shared files, single sign-on, web identity, the machine's
// role. The SDK's retries are off: it would send a conditional put twice and report our own success as a failure.
package awsstore

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/bucket"
)

// Open prepares the store at a location. It does not ask the store for anything, but the chain of credentials may ask the
// machine's own services.
func Open(ctx context.Context, l bucket.Location) (*bucket.Store, error) {
	conns, err := bucket.Connect(l.CAFile)
	if err != nil {
		return nil, err
	}
	var options []func(*config.LoadOptions) error
	if l.Region != "" {
		options = append(options, config.WithRegion(l.Region))
	}
	settings, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("load the AWS configuration: %w", err)
	}
	if settings.Region == "" {
		return nil, errors.New("the region is not known: write ?region= or set AWS_REGION")
	}
	s3Client := s3.NewFromConfig(settings, func(o *s3.Options) {
		o.HTTPClient = &http.Client{Transport: conns, CheckRedirect: noRedirect}
		o.Retryer = aws.NopRetryer{}
		o.UsePathStyle = l.PathStyle
		if l.Endpoint != "" {
			o.BaseEndpoint = aws.String(l.Endpoint)
		}
		// We sum each body by ourselves, and what comes back is checked by its own sums.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	})
	return bucket.New(&client{s3Client, l.Bucket}, conns, l)
}

// noRedirect leaves a redirection to the caller: a request that is signed for one host is worth nothing at another.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// unsigned leaves the hash of a body out of its signature; see package bucket.
var unsigned = s3.WithAPIOptions(v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)

// client is a bucket.Client.
type client struct {
	s3     *s3.Client
	bucket string
}

func (c *client) Get(ctx context.Context, key string, r object.Range) (*object.Object, error) {
	in := &s3.GetObjectInput{Bucket: &c.bucket, Key: &key}
	if !r.Whole() {
		in.Range = aws.String(bucket.HTTPRange(r))
	}
	out, err := c.s3.GetObject(ctx, in)
	if err != nil {
		return nil, err
	}
	size, err := bucket.WholeSize(aws.ToString(out.ContentRange), aws.ToInt64(out.ContentLength))
	if err != nil {
		out.Body.Close()
		return nil, err
	}
	info := object.Info{Size: size, ModTime: aws.ToTime(out.LastModified), Token: object.Token(aws.ToString(out.ETag))}
	return &object.Object{Info: info, Body: out.Body}, nil
}

func (c *client) Head(ctx context.Context, key string) (object.Info, error) {
	out, err := c.s3.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &c.bucket, Key: &key})
	if err != nil {
		return object.Info{}, err
	}
	return object.Info{
		Size: aws.ToInt64(out.ContentLength), ModTime: aws.ToTime(out.LastModified), Token: object.Token(aws.ToString(out.ETag)),
	}, nil
}

func (c *client) Put(ctx context.Context, key string, body bucket.Payload, cond object.Condition) (object.Token, error) {
	in := &s3.PutObjectInput{
		Bucket: &c.bucket, Key: &key, Body: body, ContentLength: &body.Size, ChecksumCRC32C: sum(body.CRC32C),
	}
	in.IfNoneMatch, in.IfMatch = condition(cond)
	out, err := c.s3.PutObject(ctx, in, unsigned)
	if err != nil {
		return "", err
	}
	return object.Token(aws.ToString(out.ETag)), nil
}

func (c *client) Delete(ctx context.Context, key string) error {
	_, err := c.s3.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &c.bucket, Key: &key})
	return err
}

func (c *client) List(ctx context.Context, prefix, after string) iter.Seq2[object.Info, error] {
	return func(yield func(object.Info, error) bool) {
		in := &s3.ListObjectsV2Input{Bucket: &c.bucket, Prefix: &prefix}
		if after != "" {
			in.StartAfter = &after
		}
		for {
			out, err := c.s3.ListObjectsV2(ctx, in)
			if err != nil {
				yield(object.Info{}, err)
				return
			}
			for _, o := range out.Contents {
				info := object.Info{
					Key: aws.ToString(o.Key), Size: aws.ToInt64(o.Size), ModTime: aws.ToTime(o.LastModified),
					Token: object.Token(aws.ToString(o.ETag)),
				}
				if !yield(info, nil) {
					return
				}
			}
			if !aws.ToBool(out.IsTruncated) {
				return
			}
			if in.ContinuationToken = out.NextContinuationToken; in.ContinuationToken == nil {
				yield(object.Info{}, bucket.ErrNoNext)
				return
			}
		}
	}
}

func (c *client) BeginUpload(ctx context.Context, key string) (string, error) {
	out, err := c.s3.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &c.bucket, Key: &key, ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c,
	})
	if err != nil {
		return "", err
	}
	return aws.ToString(out.UploadId), nil
}

func (c *client) PutPart(ctx context.Context, key, upload string, number int, body bucket.Payload) (object.Token, error) {
	out, err := c.s3.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &c.bucket, Key: &key, UploadId: &upload, PartNumber: aws.Int32(int32(number)),
		Body: body, ContentLength: &body.Size, ChecksumCRC32C: sum(body.CRC32C),
	}, unsigned)
	if err != nil {
		return "", err
	}
	return object.Token(aws.ToString(out.ETag)), nil
}

func (c *client) CompleteUpload(ctx context.Context, key, upload string, parts []object.Part, cond object.Condition) (object.Token, error) {
	done := make([]types.CompletedPart, len(parts))
	for i, p := range parts {
		done[i] = types.CompletedPart{
			PartNumber: aws.Int32(int32(p.Number)), ETag: aws.String(string(p.Token)), ChecksumCRC32C: sum(p.CRC32C),
		}
	}
	in := &s3.CompleteMultipartUploadInput{
		Bucket: &c.bucket, Key: &key, UploadId: &upload, MultipartUpload: &types.CompletedMultipartUpload{Parts: done},
	}
	in.IfNoneMatch, in.IfMatch = condition(cond)
	out, err := c.s3.CompleteMultipartUpload(ctx, in)
	if err != nil {
		return "", err
	}
	return object.Token(aws.ToString(out.ETag)), nil
}

func (c *client) AbortUpload(ctx context.Context, key, upload string) error {
	_, err := c.s3.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &c.bucket, Key: &key, UploadId: &upload})
	return err
}

func (c *client) Uploads(ctx context.Context, prefix string) iter.Seq2[bucket.Upload, error] {
	return func(yield func(bucket.Upload, error) bool) {
		in := &s3.ListMultipartUploadsInput{Bucket: &c.bucket, Prefix: &prefix}
		for {
			out, err := c.s3.ListMultipartUploads(ctx, in)
			if err != nil {
				yield(bucket.Upload{}, err)
				return
			}
			for _, u := range out.Uploads {
				if !yield(bucket.Upload{Key: aws.ToString(u.Key), ID: aws.ToString(u.UploadId), Begun: aws.ToTime(u.Initiated)}, nil) {
					return
				}
			}
			if !aws.ToBool(out.IsTruncated) {
				return
			}
			if in.KeyMarker, in.UploadIdMarker = out.NextKeyMarker, out.NextUploadIdMarker; aws.ToString(in.KeyMarker) == "" {
				yield(bucket.Upload{}, bucket.ErrNoNext)
				return
			}
		}
	}
}

func (c *client) Status(err error) (status int, code string) {
	if answer, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		status = answer.HTTPStatusCode()
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		code = api.ErrorCode()
	}
	return status, code
}

// condition is what the headers If-None-Match and If-Match say.
func condition(c object.Condition) (none, match *string) {
	switch c.Kind {
	case object.Absent:
		return aws.String("*"), nil
	case object.Match:
		return nil, aws.String(string(c.Token))
	}
	return nil, nil
}

// sum is a CRC32C as S3 writes it.
func sum(crc uint32) *string {
	return aws.String(base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc)))
}
