// Package storeurl opens the object store that a URL names. It is apart from package object because it knows all
// implementations, which object must not.
package storeurl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/awsstore"
	"github.com/tidemark-io/tidemark/tier/object/bucket"
	"github.com/tidemark-io/tidemark/tier/object/filestore"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
	"github.com/tidemark-io/tidemark/tier/object/miniostore"
)

// openers holds what each scheme means; folder opens the store in a folder.
func openers(folder func(root string) (*filestore.Store, error)) map[string]func(ctx context.Context, u *url.URL) (object.Store, error) {
	return map[string]func(ctx context.Context, u *url.URL) (object.Store, error){
		"file":  func(_ context.Context, u *url.URL) (object.Store, error) { return openFile(u, folder) },
		"mem":   openMem,
		"minio": openMinIO,
		"s3":    openS3,
	}
}

// Forms are the URLs that Open understands, for people.
const Forms = "s3://bucket/prefix, minio://host:port/bucket/prefix, file:///dir or mem://"

// Open opens the store of the setting store.url:
//
//	s3://bucket/prefix?region=R&endpoint=URL&path-style=BOOL&ca=FILE
//	minio://host:port/bucket/prefix?tls=BOOL&region=R&ca=FILE
//	file:///dir
//	mem://
//
// The last is a new, empty store in memory. The prefix is a folder of the bucket and may be left out. Without an endpoint s3 is
// AWS; with one, the bucket is in the path unless path-style is false. minio speaks plain HTTP unless tls is true. ca is a file
// of certificates to trust beside the system's. There is no place for credentials in a URL: they come from the environment, from
// the files, or from the role that the client's own chain looks for.
//
// It changes nothing: a folder that is no store is an error.
func Open(ctx context.Context, rawURL string) (object.Store, error) {
	return openURL(ctx, rawURL, filestore.Open)
}

// Create is Open for whoever may begin a store: it makes the store in a folder where there is none. Buckets are made elsewhere.
func Create(ctx context.Context, rawURL string) (object.Store, error) {
	return openURL(ctx, rawURL, filestore.Create)
}

func openURL(ctx context.Context, rawURL string, folder func(root string) (*filestore.Store, error)) (object.Store, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("open object store: %w", withoutURL(err))
	}
	open, ok := openers(folder)[u.Scheme]
	switch {
	case !ok:
		return nil, fmt.Errorf("open object store %s: unknown kind %q, use %s", shown(u), u.Scheme, Forms)
	case u.User != nil:
		return nil, fmt.Errorf("open object store %s: a URL is no place for credentials, write AWS_ACCESS_KEY_ID and "+
			"AWS_SECRET_ACCESS_KEY to the environment", shown(u))
	case u.Fragment != "":
		return nil, fmt.Errorf("open object store %s: #%s means nothing", shown(u), u.Fragment)
	}
	s, err := open(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("open object store %s: %w", shown(u), err)
	}
	return s, nil
}

// shown is the URL without whatever somebody took for a place for credentials.
func shown(u *url.URL) string {
	clean := *u
	clean.User = nil
	if strings.Contains(clean.RawQuery, "@") || strings.Contains(clean.RawQuery, "%40") {
		clean.RawQuery = ""
	}
	return clean.String()
}

// withoutURL is a parser's error without the text that it parsed, which may hold a password.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

func openFile(u *url.URL, folder func(root string) (*filestore.Store, error)) (object.Store, error) {
	if u.Host != "" || u.Path == "" || u.RawQuery != "" {
		return nil, errors.New("write file:///dir, with three slashes and an absolute folder")
	}
	return folder(u.Path)
}

func openMem(_ context.Context, u *url.URL) (object.Store, error) {
	if u.Host != "" || u.Path != "" {
		return nil, errors.New("write mem://, a store in memory has no name")
	}
	return memstore.New(nil), nil
}

func openS3(ctx context.Context, u *url.URL) (object.Store, error) {
	l, q, err := location(u, "region", "endpoint", "path-style", "ca")
	if err != nil {
		return nil, err
	}
	if u.Host == "" || u.Port() != "" {
		return nil, errors.New("write s3://bucket/prefix, and the address of a server as ?endpoint=")
	}
	l.Bucket, l.Prefix = u.Host, strings.Trim(u.Path, "/")
	if l.Endpoint = q.Get("endpoint"); l.Endpoint != "" {
		e, err := url.Parse(l.Endpoint)
		if err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Host == "" || e.User != nil || strings.Trim(e.Path, "/") != "" {
			return nil, errors.New("write the endpoint as http://host:port or https://host:port")
		}
	}
	if l.PathStyle, err = boolean(q, "path-style", l.Endpoint != ""); err != nil {
		return nil, err
	}
	return awsstore.Open(ctx, l)
}

func openMinIO(_ context.Context, u *url.URL) (object.Store, error) {
	l, q, err := location(u, "tls", "region", "ca")
	if err != nil {
		return nil, err
	}
	l.Bucket, l.Prefix, _ = strings.Cut(strings.Trim(u.Path, "/"), "/")
	if u.Host == "" || l.Bucket == "" {
		return nil, errors.New("write minio://host:port/bucket/prefix")
	}
	encrypted, err := boolean(q, "tls", false)
	if err != nil {
		return nil, err
	}
	l.Endpoint = "http://" + u.Host
	if encrypted {
		l.Endpoint = "https://" + u.Host
	}
	l.PathStyle = true
	return miniostore.Open(l)
}

// location reads what both kinds of URL have, and refuses names that the kind does not know: a typing error in a
// URL must not be a different store.
func location(u *url.URL, names ...string) (bucket.Location, url.Values, error) {
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return bucket.Location{}, nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if !slices.Contains(names, name) {
			return bucket.Location{}, nil, fmt.Errorf("%q is not a parameter, use %s", name, strings.Join(names, ", "))
		}
		if len(q[name]) > 1 {
			return bucket.Location{}, nil, fmt.Errorf("%q is there %d times", name, len(q[name]))
		}
	}
	return bucket.Location{Region: q.Get("region"), CAFile: q.Get("ca")}, q, nil
}

func boolean(q url.Values, name string, otherwise bool) (bool, error) {
	if !q.Has(name) {
		return otherwise, nil
	}
	b, err := strconv.ParseBool(q.Get(name))
	if err != nil {
		return false, fmt.Errorf("%s is true or false and not %q", name, q.Get(name))
	}
	return b, nil
}
