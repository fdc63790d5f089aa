// Package cluster is cluster.json, the object that makes a bucket, or a prefix of one, the home of one cluster. It is
// created once and never changed.
//
// The danger it guards against is a bucket that was emptied, or a prefix that was mistyped: to a broker that has been
// part of a cluster it must never look like a place for a new one (safety rule 8).
package cluster

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tidemark-io/tidemark/tier/object"
)

// Key is where the object lies.
const Key = "cluster.json"

// MetadataPrefix is where the chain of the cluster's metadata lies.
const MetadataPrefix = "metadata"

// FormatVersion is the version of the bucket's layout that this code reads and writes.
const FormatVersion = 1

// bytesMax is far above what the object needs.
const bytesMax = 64 << 10

// Cluster is the content of cluster.json.
type Cluster struct {
	ID        string `json:"cluster_id"` // 22 characters of base64url, as in Kafka
	Version   int    `json:"version"`    // of the bucket's layout
	CreatedMs int64  `json:"created_ms"` // for people
}

// The reasons why a broker must not go on with a bucket. Compare with errors.Is.
var (
	// ErrMissing: the bucket has no cluster.json though it must have one.
	ErrMissing = errors.New("no cluster.json: the bucket was emptied, or this is the wrong one")
	// ErrMismatch: the bucket belongs to another cluster than the broker.
	ErrMismatch = errors.New("the bucket belongs to another cluster")
	// ErrFormat: cluster.json is damaged, or of a version that this code does not know.
	ErrFormat = errors.New("cluster.json is not readable")
)

// Ensure returns the cluster that the bucket belongs to. known is the cluster id in the broker's meta.properties, or empty
// for a broker whose data directories are all new: only such a broker may create cluster.json, out of fresh, and only in a
// bucket that holds no metadata. Of brokers that do so at once one wins, and all get its Cluster.
func Ensure(ctx context.Context, s object.Store, known string, fresh Cluster) (Cluster, error) {
	used := known != ""
	if !used {
		// Looked at before cluster.json, so that metadata of a cluster that begins right now is none without one.
		for _, err := range s.List(ctx, MetadataPrefix+"/", "") {
			if err != nil {
				return Cluster{}, fmt.Errorf("look for metadata: %w", err)
			}
			used = true
			break
		}
	}
	c, err := Load(ctx, s)
	switch {
	case errors.Is(err, ErrMissing) && !used:
		return create(ctx, s, fresh)
	case err != nil:
		return Cluster{}, err
	case known != "" && c.ID != known:
		return Cluster{}, fmt.Errorf("%w: %s, the data directories are of %s", ErrMismatch, c.ID, known)
	}
	return c, nil
}

func create(ctx context.Context, s object.Store, fresh Cluster) (Cluster, error) {
	if err := fresh.check(); err != nil {
		return Cluster{}, err
	}
	body, err := json.Marshal(fresh)
	if err != nil {
		return Cluster{}, fmt.Errorf("encode cluster.json: %w", err)
	}
	settled, err := object.Settle(ctx, s, Key, append(body, '\n'), object.IfAbsent(), bytesMax)
	if err != nil {
		return Cluster{}, fmt.Errorf("create the cluster: %w", err)
	}
	return decode(settled.Body)
}

// Load reads cluster.json.
func Load(ctx context.Context, s object.Store) (Cluster, error) {
	body, _, err := object.Read(ctx, s, Key, bytesMax)
	switch {
	case errors.Is(err, object.ErrNotExist):
		return Cluster{}, ErrMissing
	case errors.Is(err, object.ErrTooLarge):
		return Cluster{}, fmt.Errorf("%w: %w", ErrFormat, err)
	case err != nil:
		return Cluster{}, fmt.Errorf("load the cluster: %w", err)
	}
	return decode(body)
}

func decode(body []byte) (Cluster, error) {
	var c Cluster
	if err := json.Unmarshal(body, &c); err != nil {
		return Cluster{}, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return c, c.check()
}

func (c Cluster) check() error {
	if c.Version != FormatVersion {
		return fmt.Errorf("%w: version %d, this program knows %d", ErrFormat, c.Version, FormatVersion)
	}
	if raw, err := base64.RawURLEncoding.DecodeString(c.ID); err != nil || len(raw) != 16 {
		return fmt.Errorf("%w: cluster id %q is not 22 characters of base64url", ErrFormat, c.ID)
	}
	return nil
}
