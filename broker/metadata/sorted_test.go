package metadata

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestSortedMapEqualsAMapAndNeverChangesOlderVersions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			sorted sortedMap[int, int]
			model  map[int]int
		}
		now := version{sortedMap[int, int]{compare: cmp.Compare[int]}, map[int]int{}}
		versions := []version{now}
		check := func(v version) {
			if v.sorted.len() != len(v.model) {
				t.Fatalf("length %d, want %d", v.sorted.len(), len(v.model))
			}
			from := rapid.IntRange(-1, 500).Draw(t, "from")
			keys := slices.Sorted(maps.Keys(v.model))
			keys = slices.DeleteFunc(keys, func(k int) bool { return k < from })
			var got []int
			for k, value := range v.sorted.all(from) {
				got = append(got, k)
				if value != v.model[k] {
					t.Fatalf("%d is %d, want %d", k, value, v.model[k])
				}
			}
			if !slices.Equal(got, keys) {
				t.Fatalf("from %d: %v, want %v", from, got, keys)
			}
			key := rapid.IntRange(0, 500).Draw(t, "look up")
			value, found := v.sorted.get(key)
			if want, exists := v.model[key]; found != exists || value != want {
				t.Fatalf("get %d: %d %v, want %d %v", key, value, found, want, exists)
			}
		}
		for i := range rapid.IntRange(1, 20).Draw(t, "rounds") {
			next := version{now.sorted, maps.Clone(now.model)}
			start, step := rapid.IntRange(0, 400).Draw(t, "start"), rapid.SampledFrom([]int{-1, 1, 3}).Draw(t, "step")
			remove := rapid.Bool().Draw(t, "remove")
			for n := range rapid.IntRange(1, 150).Draw(t, "count") {
				key := start + n*step
				if remove {
					next.sorted = next.sorted.without(key)
					delete(next.model, key)
				} else {
					next.sorted = next.sorted.with(key, i)
					next.model[key] = i
				}
			}
			now = next
			versions = append(versions, now)
		}
		for _, v := range versions {
			check(v)
		}
	})
}
