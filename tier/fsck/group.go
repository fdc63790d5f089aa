package fsck

import (
	"context"
	"iter"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/broker/wire"
	"github.com/tidemark-io/tidemark/tier/manifest"
	"github.com/tidemark-io/tidemark/tier/object"
)

const (
	topicsFolder   = "topics/"
	manifestFolder = "manifest/"
)

// group is what a list shows of one partition.
type group struct {
	prefix  string // without a slash at its end
	tp      wire.TopicPartition
	id      wire.TopicID
	ok      bool                   // the prefix is that of a partition
	unknown bool                   // to the metadata
	chain   int                    // objects of the manifest's chain
	objects map[string]object.Info // segments, sidecars and pages by key
	order   []string               // of the keys
	foreign []object.Info
}

// groups yields the partitions of the bucket, in the order of their keys. What does not lie where a partition's objects lie comes as
// a group that is not ok.
func groups(ctx context.Context, s object.Store) iter.Seq2[*group, error] {
	return func(yield func(*group, error) bool) {
		var g *group
		for info, err := range s.List(ctx, topicsFolder, "") {
			if err != nil {
				yield(nil, err)
				return
			}
			prefix, rest := splitKey(info.Key)
			if g == nil || g.prefix != prefix {
				if g != nil && !yield(g, nil) {
					return
				}
				g = newGroup(prefix)
			}
			g.add(rest, info)
		}
		if g != nil {
			yield(g, nil)
		}
	}
}

// splitKey cuts the partition's prefix off: topics/<topic>.<id>/<partition>.
func splitKey(key string) (prefix, rest string) {
	at := len(topicsFolder)
	for range 2 {
		i := strings.IndexByte(key[at:], '/')
		if i < 0 {
			return key[:at], key[at:]
		}
		at += i + 1
	}
	return key[:at-1], key[at:]
}

func newGroup(prefix string) *group {
	g := &group{prefix: prefix, objects: map[string]object.Info{}}
	g.tp, g.id, g.ok = ParsePrefix(prefix)
	return g
}

// ParsePrefix is the inverse of manifest.Prefix.
func ParsePrefix(prefix string) (tp wire.TopicPartition, id wire.TopicID, ok bool) {
	topic, number, ok := strings.Cut(strings.TrimPrefix(prefix, topicsFolder), "/")
	dot := strings.LastIndexByte(topic, '.')
	partition, err := strconv.ParseInt(number, 10, 32)
	if !ok || dot < 0 || err != nil || partition < 0 {
		return tp, id, false
	}
	tp = wire.TopicPartition{Topic: topic[:dot], Partition: int32(partition)}
	if err := id.UnmarshalText([]byte(topic[dot+1:])); err != nil {
		return tp, id, false
	}
	return tp, id, manifest.Prefix(tp.Topic, id, tp.Partition) == prefix
}

func (g *group) add(rest string, info object.Info) {
	switch _, _, named := manifest.ParseKey(rest); {
	case g.ok && strings.HasPrefix(rest, manifestFolder):
		g.chain++
	case g.ok && named:
		g.objects[info.Key] = info
		g.order = append(g.order, info.Key)
	default:
		g.foreign = append(g.foreign, info)
	}
}

// finding is one about the partition.
func (g *group) finding(kind Kind, data bool, text string) Finding {
	f := Finding{Kind: kind, Data: data && !g.unknown, Text: text, Key: g.prefix} // of a topic that is gone nobody's data is left
	if g.ok {
		f.Topic, f.TopicID, f.Partition = g.tp.Topic, g.id.String(), &g.tp.Partition
	}
	return f
}
