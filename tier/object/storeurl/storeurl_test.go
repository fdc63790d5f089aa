package storeurl_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/storeurl"
)

func TestOpenFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a store")
	s, err := storeurl.Open(t.Context(), "file://"+strings.ReplaceAll(dir, " ", "%20"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "a/b", strings.NewReader("body"), object.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "a", "b")); string(b) != "body" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestOpenMemIsNewEachTime(t *testing.T) {
	for range 2 {
		s, err := storeurl.Open(t.Context(), "mem://")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(t.Context(), "k", strings.NewReader(""), object.IfAbsent()); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, bad := range []string{"", "/dir", "file://dir", "file://dir/x", "file://", "file:dir", "mem://name", "ftp://x", "%zz", "file:///x?y=z"} {
		if s, err := storeurl.Open(t.Context(), bad); err == nil {
			t.Errorf("%q opens %T", bad, s)
		}
	}
	_, err := storeurl.Open(t.Context(), "ftp://user:secret@host/")
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error shows the password: %v", err)
	}
}
