package api_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/api"
)

// eachVersion runs a test for everything that is served.
func eachVersion(t *testing.T, test func(t *testing.T, e *api.Entry, version int16)) {
	t.Helper()
	table := api.Table()
	for i := range table {
		e := &table[i]
		for v := e.Min; v <= e.Max; v++ {
			t.Run(fmt.Sprintf("%s-%d", e.Name, v), func(t *testing.T) { test(t, e, v) })
		}
	}
}

// The layouts say what kmsg encodes: a walk ends where the request ends, and a shorter one is refused.
func TestLayoutsAreThoseOfTheProtocol(t *testing.T) {
	eachVersion(t, func(t *testing.T, e *api.Entry, version int16) {
		f := filler{random: rand.New(rand.NewPCG(uint64(e.Key), uint64(version)))}
		for range 50 {
			body := f.request(e, version).AppendTo(nil)
			left, _, err := api.WalkBody(e, version, body)
			if err != nil || left != 0 {
				t.Fatalf("%d of %d bytes are left, %v", left, len(body), err)
			}
			for n := range body {
				if _, _, err := api.WalkBody(e, version, body[:n]); err == nil {
					t.Fatalf("%d of %d bytes are taken for a whole request", n, len(body))
				}
			}
		}
	})
}

func TestElementsAndTagsAreCounted(t *testing.T) {
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Version = 12
	for range 5 {
		topic := kmsg.NewMetadataRequestTopic()
		topic.UnknownTags.Set(7, []byte("x"))
		metadata.Topics = append(metadata.Topics, topic)
	}
	table := api.Table()
	for i := range table {
		if table[i].Name == "Metadata" {
			if _, n, err := api.WalkBody(&table[i], 12, metadata.AppendTo(nil)); n != 5+5*4 || err != nil {
				t.Errorf("%d elements, %v", n, err)
			}
		}
	}
}

// What a request takes in memory follows from what is counted: so the bound on the count bounds the memory, at 100 bytes an element.
func TestMemoryFollowsFromTheElements(t *testing.T) {
	eachVersion(t, func(t *testing.T, e *api.Entry, version int16) {
		f := filler{random: rand.New(rand.NewPCG(1, 2)), text: func() string { return "" }, elements: func() int { return 40 }}
		for _, tagged := range []bool{false, true} {
			f.untagged = !tagged
			body := f.request(e, version).AppendTo(nil)
			_, elements, err := api.WalkBody(e, version, body)
			if err != nil {
				t.Fatal(err)
			}
			request := kmsg.RequestForKey(int16(e.Key))
			request.SetVersion(version)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err = request.ReadFrom(body)
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Fatal(err)
			}
			took := int64(after.TotalAlloc - before.TotalAlloc)
			t.Logf("%d bytes, %d elements: %d bytes", len(body), elements, took)
			if limit := int64(4096 + 100*elements); took > limit {
				t.Errorf("%d elements took %d bytes, above %d", elements, took, limit)
			}
		}
	})
}

// A body that claims more elements than it has room for, or than anybody needs, is refused before anything is made of it.
func TestBodiesThatWouldGrowAreRefused(t *testing.T) {
	table := api.Table()
	metadata := &table[3]
	body := func(claimed, room int) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(claimed)) // Metadata version 0: an array of names
		return append(b, make([]byte, room)...)
	}
	for _, c := range []struct {
		claimed, room int
		refused       bool
	}{
		{1_000_000, 2_000_000, false},
		{1_000_001, 2_000_002, true},
		{50_000_000, 100_000_000, true},
		{1_000_000, 1_999_999, true},
		{1<<31 - 1, 10_000, true},
		{5_000, 10_000, false},
	} {
		if err := api.CheckLayout(metadata, 0, body(c.claimed, c.room)); (err != nil) != c.refused {
			t.Errorf("%d names in %d bytes: %v", c.claimed, c.room, err)
		}
	}
}
