package object_test

import (
	"testing"

	"github.com/tidemark-io/tidemark/tier/object"
)

func TestCauseTravelsWithTheContext(t *testing.T) {
	if got := object.CauseOf(t.Context()); got != (object.Cause{}) {
		t.Errorf("a context without a cause has %v", got)
	}
	ctx := object.WithCause(t.Context(), object.Cause{Kind: object.CauseManifest, Topic: "t"})
	inner := object.WithCause(ctx, object.Cause{Kind: object.CauseUpload, Topic: "u"})
	if got := object.CauseOf(ctx); got.Kind.String() != "manifest" || got.Topic != "t" {
		t.Errorf("outer cause is %v", got)
	}
	if got := object.CauseOf(inner); got.Kind.String() != "upload" || got.Topic != "u" {
		t.Errorf("inner cause is %v", got)
	}
	if got := object.CauseKind(99).String(); got != "unknown" {
		t.Errorf("a kind that does not exist is called %q", got)
	}
}
