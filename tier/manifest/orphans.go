package manifest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/tier/object"
)

// Orphans lists the partition's objects that no state names and, since their leader epoch is over, none ever will (safety rule
// 22). It lists first and reads the manifest to its tail afterwards.
func (m *Manifest) Orphans(ctx context.Context) ([]object.Info, error) {
	var listed []object.Info
	for info, err := range m.store.List(ctx, m.prefix+"/", "") {
		if err != nil {
			return nil, fmt.Errorf("look for orphans: %w", err)
		}
		if _, _, ok := m.parse(info.Key); ok {
			listed = append(listed, info)
		}
	}
	s, err := m.Refresh(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for orphans: %w", err)
	}
	named, err := m.named(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("look for orphans: %w", err)
	}
	return slices.DeleteFunc(listed, func(info object.Info) bool {
		name, kind, _ := m.parse(info.Key)
		return named[upload{name, kind == PageObject}] || name.Epoch >= s.LeaderEpoch()
	}), nil
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
