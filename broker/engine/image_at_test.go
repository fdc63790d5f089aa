package engine

import (
	"testing"
	"time"
)

func TestTheMetadataReadsAsOfAPastTime(t *testing.T) {
	r := serving(t)
	r.create("first")
	between := r.now
	r.pass(time.Minute)
	r.create("second")
	past, err := ReadImageAt(t.Context(), r.bucket, between)
	if err != nil || past.Topic("first") == nil || past.Topic("second") != nil {
		t.Errorf("as of then: %v, %v, %v", past.Topic("first"), past.Topic("second"), err)
	}
	if now, err := ReadImageAt(t.Context(), r.bucket, r.now); err != nil || now.Hash() != r.committed().Hash() {
		t.Errorf("as of now it is another one, %v", err)
	}
}
