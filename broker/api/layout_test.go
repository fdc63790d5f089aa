package api_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/api/apitest"
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

// row is the row of an API.
func row(t testing.TB, name string) *api.Entry {
	t.Helper()
	table := api.Table()
	i := slices.IndexFunc(table, func(e api.Entry) bool { return e.Name == name })
	if i < 0 {
		t.Fatalf("no row for %s", name)
	}
	return &table[i]
}

// The layouts say what kmsg encodes: a walk ends where the request ends, and a shorter one is refused.
func TestLayoutsAreThoseOfTheProtocol(t *testing.T) {
	eachVersion(t, func(t *testing.T, e *api.Entry, version int16) {
		f := apitest.Filler{Random: rand.New(rand.NewPCG(uint64(e.Key), uint64(version)))}
		for range 50 {
			body := f.Request(e, version).AppendTo(nil)
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
	if _, n, err := api.WalkBody(row(t, "Metadata"), 12, metadata.AppendTo(nil)); n != 5+5*4 || err != nil {
		t.Errorf("%d elements, %v", n, err)
	}
}

// Null is refused where Kafka refuses it, as are lengths below it and those that do not fit into 31 bits.
func TestNullIsForFieldsThatMayBeNull(t *testing.T) {
	null, below, huge := []byte{0xff, 0xff, 0xff, 0xff}, []byte{0xff, 0xff, 0xff, 0xfe}, []byte{0xff, 0xff, 0xff, 0xff, 0x0f}
	for _, c := range []struct {
		api     string
		version int16
		body    []byte
		refused bool
	}{
		{"Metadata", 0, null, true},
		{"Metadata", 1, null, false},
		{"Metadata", 1, below, false}, // any negative length is null
		{"Metadata", 9, append([]byte{0}, 0, 0, 0, 0), false},
		{"Metadata", 9, append(huge, 0, 0, 0, 0), false},
		{"OffsetFetch", 1, append([]byte{0, 0}, null...), true},
		{"OffsetFetch", 2, append([]byte{0, 0}, null...), false},
		{"OffsetFetch", 2, append([]byte{0xff, 0xff}, null...), true},
		{"DescribeGroups", 0, append([]byte{0, 0, 0, 1}, 0xff, 0xff), true},
	} {
		e := row(t, c.api)
		if err := api.CheckLayout(e, c.version, c.body); (err != nil) != c.refused {
			t.Errorf("%s version %d: %x: %v", e.Name, c.version, c.body, err)
		}
	}
}

func TestStringsAreAsShortInCompactVersions(t *testing.T) {
	e := row(t, "DescribeGroups")
	for n, refused := range map[int]bool{math.MaxInt16: false, math.MaxInt16 + 1: true} {
		request := kmsg.NewPtrDescribeGroupsRequest()
		request.Version, request.Groups = 5, []string{strings.Repeat("g", n)}
		if err := api.CheckLayout(e, 5, request.AppendTo(nil)); (err != nil) != refused {
			t.Errorf("%d letters: %v", n, err)
		}
	}
}

func BenchmarkCheckLayout(b *testing.B) {
	for _, name := range []string{"Produce", "Fetch", "Heartbeat"} {
		e := row(b, name)
		b.Run(e.Name, func(b *testing.B) {
			f := apitest.Filler{Random: rand.New(rand.NewPCG(1, 1)), Elements: func() int { return 1 }, Untagged: true}
			body := f.Request(e, e.Max).AppendTo(nil)
			b.ReportAllocs()
			for b.Loop() {
				if err := api.CheckLayout(e, e.Max, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What a request takes in memory follows from what is counted: so the bound on the count bounds the memory. An element takes up to 80
// bytes; with the race detector arrays are made twice.
func TestMemoryFollowsFromTheElements(t *testing.T) {
	if testing.Short() {
		t.Skip("short tests are for the race detector, under which memory is another")
	}
	eachVersion(t, func(t *testing.T, e *api.Entry, version int16) {
		f := apitest.Filler{Random: rand.New(rand.NewPCG(1, 2)), Text: func() string { return "" }, Elements: func() int { return 40 }}
		for _, tagged := range []bool{false, true} {
			f.Untagged = !tagged
			body := f.Request(e, version).AppendTo(nil)
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
			if limit := int64(4096 + 200*elements); took > limit {
				t.Errorf("%d elements took %d bytes, above %d", elements, took, limit)
			}
		}
	})
}

// A body that claims more elements than it has room for, or than anybody needs, is refused before anything is made of it.
func TestBodiesThatWouldGrowAreRefused(t *testing.T) {
	metadata := row(t, "Metadata")
	body := func(claimed, room int) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(claimed)) // Metadata version 0: an array of names
		return append(b, make([]byte, room)...)
	}
	for _, c := range []struct {
		claimed, room int
		refused       bool
	}{
		{1 << 18, 2 << 18, false},
		{1<<18 + 1, 2<<18 + 2, true},
		{50_000_000, 100_000_000, true},
		{1 << 18, 2<<18 - 1, true},
		{1<<31 - 1, 10_000, true},
		{5_000, 10_000, false},
	} {
		if err := api.CheckLayout(metadata, 0, body(c.claimed, c.room)); (err != nil) != c.refused {
			t.Errorf("%d names in %d bytes: %v", c.claimed, c.room, err)
		}
	}
}
