package cluster_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/tier/object"
	"github.com/tidemark-io/tidemark/tier/object/cluster"
	"github.com/tidemark-io/tidemark/tier/object/faultstore"
	"github.com/tidemark-io/tidemark/tier/object/memstore"
)

const (
	idA = "AAAAAAAAAAAAAAAAAAAAAA"
	idB = "BBBBBBBBBBBBBBBBBBBBBA"
)

func of(id string) cluster.Cluster {
	return cluster.Cluster{ID: id, Version: cluster.FormatVersion, CreatedMs: 1}
}

func bucket(t *testing.T, objects map[string]string) object.Store {
	t.Helper()
	s := memstore.New(nil)
	for key, body := range objects {
		if _, err := s.Put(t.Context(), key, strings.NewReader(body), object.IfAbsent()); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestSafety08AnEmptiedBucketIsNotANewCluster: who may create cluster.json, and what is refused.
func TestSafety08AnEmptiedBucketIsNotANewCluster(t *testing.T) {
	bodyA := `{"cluster_id":"` + idA + `","version":1,"created_ms":1}`
	for _, c := range []struct {
		name    string
		objects map[string]string
		known   string
		want    string
		err     error
	}{
		{"new broker, new bucket", nil, "", idB, nil},
		{"new broker joins", map[string]string{"cluster.json": bodyA}, "", idA, nil},
		{"broker comes back", map[string]string{"cluster.json": bodyA}, idA, idA, nil},
		{"broker comes back to an emptied bucket", nil, idA, "", cluster.ErrMissing},
		{"broker comes to another cluster's bucket", map[string]string{"cluster.json": bodyA}, idB, "", cluster.ErrMismatch},
		{"cluster.json alone was lost", map[string]string{"metadata/00000000000000000001.json": "{}"}, "", "", cluster.ErrMissing},
		{"not JSON", map[string]string{"cluster.json": "{"}, idA, "", cluster.ErrFormat},
		{"empty", map[string]string{"cluster.json": ""}, "", "", cluster.ErrFormat},
		{"no id", map[string]string{"cluster.json": `{"version":1}`}, "", "", cluster.ErrFormat},
		{"newer version", map[string]string{"cluster.json": strings.Replace(bodyA, `:1,`, `:2,`, 1)}, idA, "", cluster.ErrFormat},
		{"far too large", map[string]string{"cluster.json": strings.Repeat(" ", 1<<20) + bodyA}, idA, "", cluster.ErrFormat},
	} {
		s := bucket(t, c.objects)
		got, err := cluster.Ensure(t.Context(), s, c.known, of(idB))
		if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || got.ID != c.want && c.err == nil {
			t.Errorf("%s: %q, %v; want %q, %v", c.name, got.ID, err, c.want, c.err)
		}
		_, before := c.objects[cluster.Key]
		_, err = s.Head(t.Context(), cluster.Key)
		if created := err == nil && !before; created != (c.name == "new broker, new bucket") {
			t.Errorf("%s: created: %v", c.name, created)
		}
	}
}

func TestOfTwoThatCreateOneWinsAndBothKnow(t *testing.T) {
	inner := memstore.New(nil)
	s := faultstore.New(inner, func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.Put { // the other is just a little faster
			if got, err := cluster.Ensure(t.Context(), inner, "", of(idA)); err != nil || got.ID != idA {
				t.Error(got, err)
			}
		}
		return faultstore.None
	})
	got, err := cluster.Ensure(t.Context(), s, "", of(idB))
	if err != nil || got.ID != idA {
		t.Errorf("the slower one has %q, %v", got.ID, err)
	}
}

func TestAStoreThatIsAwayIsNotAnEmptyOne(t *testing.T) {
	for _, script := range [][]faultstore.Fault{{faultstore.Refuse}, {faultstore.None, faultstore.Refuse}} {
		for _, known := range []string{"", idA} {
			s := faultstore.New(memstore.New(nil), faultstore.Script(script...))
			if _, err := cluster.Ensure(t.Context(), s, known, of(idB)); known == "" && !errors.Is(err, object.ErrUnavailable) {
				t.Errorf("faults %v: %v", script, err)
			}
		}
	}
	lost := faultstore.New(memstore.New(nil), faultstore.Script(faultstore.None, faultstore.None, faultstore.LoseAnswer))
	if got, err := cluster.Ensure(t.Context(), lost, "", of(idB)); err != nil || got.ID != idB {
		t.Errorf("lost answer: %q, %v", got.ID, err)
	}
}

func TestABadIDIsNotCreated(t *testing.T) {
	if _, err := cluster.Ensure(t.Context(), memstore.New(nil), "", of("short")); !errors.Is(err, cluster.ErrFormat) {
		t.Error(err)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(`{"cluster_id":"AAAAAAAAAAAAAAAAAAAAAA","version":1,"created_ms":1}`)
	f.Fuzz(func(t *testing.T, body string) {
		s := bucket(t, map[string]string{cluster.Key: body})
		c, err := cluster.Load(t.Context(), s)
		if err == nil && (len(c.ID) != 22 || c.Version != 1) {
			t.Errorf("%q loads as %+v", body, c)
		}
	})
}
