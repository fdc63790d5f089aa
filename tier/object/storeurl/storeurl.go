// Package storeurl opens the object store that a URL names. It is apart from package object because it knows all
// implementations, which object must not.
package storeurl

import (
	"context"
	"fmt"
	"net/url"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/filestore"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
)

// openers holds what each scheme means.
var openers = map[string]func(ctx context.Context, u *url.URL) (object.Store, error){
	"file": openFile,
	"mem":  openMem,
}

// Open opens the store of the setting store.url: file:///dir for a folder, mem:// for a new, empty store in memory.
func Open(ctx context.Context, rawURL string) (object.Store, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("open object store: %w", err)
	}
	open, ok := openers[u.Scheme]
	if !ok {
		return nil, fmt.Errorf("open object store %s: unknown kind %q, use file:///dir or mem://", u.Redacted(), u.Scheme)
	}
	s, err := open(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("open object store %s: %w", u.Redacted(), err)
	}
	return s, nil
}

func openFile(_ context.Context, u *url.URL) (object.Store, error) {
	if u.Host != "" || u.Path == "" || u.RawQuery != "" {
		return nil, fmt.Errorf("write file:///dir, with three slashes and an absolute folder")
	}
	return filestore.Open(u.Path)
}

func openMem(_ context.Context, u *url.URL) (object.Store, error) {
	if u.Host != "" || u.Path != "" {
		return nil, fmt.Errorf("write mem://, a store in memory has no name")
	}
	return memstore.New(nil), nil
}
