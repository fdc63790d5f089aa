package memstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
	"github.com/tidemark-io/tidemark/tier/object/objecttest"
)

func TestStoreConforms(t *testing.T) { objecttest.Run(t, memstore.New(nil)) }

func TestModTimeIsOfTheInjectedClock(t *testing.T) {
	at := time.UnixMilli(1_000)
	s := memstore.New(func() time.Time { return at })
	if _, err := s.Put(t.Context(), "k", strings.NewReader("x"), object.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	at = at.Add(time.Hour)
	info, err := s.Head(t.Context(), "k")
	if err != nil || !info.ModTime.Equal(time.UnixMilli(1_000)) {
		t.Errorf("%v, %v", info.ModTime, err)
	}
}

func TestStoredBodyIsItsOwn(t *testing.T) {
	s := memstore.New(nil)
	body := []byte("body")
	if _, err := s.Put(t.Context(), "k", strings.NewReader(string(body)), object.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	got, _, _ := object.Read(t.Context(), s, "k", 10)
	got[0] = 'X'
	if again, _, _ := object.Read(t.Context(), s, "k", 10); string(again) != "body" {
		t.Errorf("a reader changed the object to %q", again)
	}
}
