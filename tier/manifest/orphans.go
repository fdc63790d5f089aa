package manifest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/tier/object"
)

// Orphans lists the partition's objects that no state names and, since their leader epoch is over, none ever will (safety rule 22).
func (m *Manifest) Orphans(ctx context.Context) ([]object.Info, error) {
	unnamed, s, err := m.unnamed(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for orphans: %w", err)
	}
	return slices.DeleteFunc(unnamed, func(info object.Info) bool {
		name, _, _ := m.parse(info.Key)
		return name.Epoch >= s.LeaderEpoch()
	}), nil
}

// Unnamed lists the segments in the bucket, by their bases, that the manifest does not name: orphans, uploads that are under way, and
// what a manifest that was lost or rolled back has forgotten.
func (m *Manifest) Unnamed(ctx context.Context) ([]Name, error) {
	unnamed, _, err := m.unnamed(ctx)
	if err != nil {
		return nil, err
	}
	var segments []Name
	for _, info := range unnamed {
		if name, kind, _ := m.parse(info.Key); kind == LogObject {
			segments = append(segments, name)
		}
	}
	slices.SortStableFunc(segments, func(a, b Name) int { return cmp.Compare(a.Base, b.Base) })
	return segments, nil
}

// unnamed lists the partition's objects that a state does not name, and gives that state. It lists first and reads the manifest to its
// tail afterwards.
func (m *Manifest) unnamed(ctx context.Context) ([]object.Info, *State, error) {
	var listed []object.Info
	for info, err := range m.store.List(ctx, m.prefix+"/", "") {
		if err != nil {
			return nil, nil, err
		}
		if _, _, ok := m.parse(info.Key); ok {
			listed = append(listed, info)
		}
	}
	s, err := m.Refresh(ctx)
	if err != nil {
		return nil, nil, err
	}
	named, err := m.named(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	return slices.DeleteFunc(listed, func(info object.Info) bool {
		name, kind, _ := m.parse(info.Key)
		return named[upload{name, kind == PageObject}]
	}), s, nil
}

func (m *Manifest) parse(key string) (Name, Kind, bool) {
	return ParseKey(strings.TrimPrefix(key, m.prefix+"/"))
}

// upload is what a manifest names: a segment with its sidecar, or a page.
type upload struct {
	Name
	page bool
}

// named is all that a state names.
func (m *Manifest) named(ctx context.Context, s *State) (map[upload]bool, error) {
	named := make(map[upload]bool, s.Segments+len(s.Pages)+len(s.Dropped))
	for _, p := range s.Pages {
		named[upload{p.Name, true}] = true
	}
	for _, d := range s.Dropped {
		named[upload{d.Name, d.Page}] = true
	}
	for t, err := range m.all(ctx, s) {
		if err != nil {
			return nil, err
		}
		named[upload{t.Name, false}] = true
	}
	return named, nil
}
