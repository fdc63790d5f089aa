package object

import "context"

// CauseKind is what a request to the store is for.
type CauseKind int8

// The kinds of causes. NoCause is a request whose caller did not say.
const (
	NoCause       CauseKind = iota
	CauseLease              // the controller's lease
	CauseMetadata           // the cluster's metadata and its identity
	CauseUpload             // segments and their indexes on their way into the bucket
	CauseManifest           // partitions' manifests
	CauseFetch              // what consumers read
	CauseSweep              // deletes by retention, deleted topics, orphans
	CauseTool               // somebody's command

	causeKinds // how many there are
)

var causeNames = [causeKinds]string{"none", "lease", "metadata", "upload", "manifest", "fetch", "sweep", "tool"}

func (k CauseKind) String() string {
	if k < 0 || k >= causeKinds {
		return "unknown"
	}
	return causeNames[k]
}

// Cause says why a request is made, for metrics and for the estimate of what they cost.
type Cause struct {
	Kind  CauseKind
	Topic string // empty where it is no topic's
}

type causeKey struct{}

// WithCause labels the requests that are made with the context.
func WithCause(ctx context.Context, c Cause) context.Context {
	return context.WithValue(ctx, causeKey{}, c)
}

// CauseOf is the label of the context; the zero Cause if it has none.
func CauseOf(ctx context.Context) Cause {
	c, _ := ctx.Value(causeKey{}).(Cause)
	return c
}
