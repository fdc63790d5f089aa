package chain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// TestEntryBytes pins the format: buckets live longer than programs.
func TestEntryBytes(t *testing.T) {
	e := Entry{
		Number: 7, Epoch: 3, Writer: Writer{Broker: 1, Incarnation: "J7s0\"x"}, Nonce: "n<1>", FirstRecord: 12, CreatedMs: 1800000000000,
		PrevHash: Hash{0xab, 31: 0xcd},
		Records:  []json.RawMessage{json.RawMessage(`{"type":"Topic", "name":"<a>&b"}`), json.RawMessage(`1`)},
	}
	body, err := e.encode()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"version":1,"number":7,"epoch":3,"writer":{"broker":1,"incarnation":"J7s0\"x"},"nonce":"n\u003c1\u003e",` +
		`"first_record":12,"prev_hash":"ab000000000000000000000000000000000000000000000000000000000000cd","created_ms":1800000000000,"records":[
{"type":"Topic", "name":"<a>&b"},
1
],"crc32c":"2da42016"}
`
	if string(body) != want {
		t.Errorf("got  %s\nwant %s", body, want)
	}
	got, err := decodeEntry(body, 7)
	if err != nil {
		t.Fatal(err)
	}
	if got.Position() != e.Position() || got.Nonce != e.Nonce || string(got.Records[0]) != string(e.Records[0]) {
		t.Errorf("decodes as %+v", got)
	}
	const sum = "162e2df1ee850c7ec4973d26305473b209919fb4fe8b4026ca3dac13003c1cbc" // sha256sum of the body
	if p := got.Position(); p.NextRecord != 14 || p.Hash.String() != sum {
		t.Errorf("position %+v", p)
	}
}

func TestEveryBitOfAnEntryIsCovered(t *testing.T) {
	e := Entry{Number: 7, Epoch: 3, Nonce: "n", Records: []json.RawMessage{json.RawMessage(`"x"`)}}
	body, err := e.encode()
	if err != nil {
		t.Fatal(err)
	}
	for i := range body {
		for bit := range 8 {
			damaged := bytes.Clone(body)
			damaged[i] ^= 1 << bit
			if got, err := decodeEntry(damaged, 7); err == nil && got.hash == e.hash {
				t.Errorf("bit %d of byte %d is not covered", bit, i)
			} else if err == nil && i < len(body)-len(bodyEnd)-8 {
				t.Errorf("bit %d of byte %d passes the checksum", bit, i)
			}
		}
	}
	for cut := range body {
		if _, err := decodeEntry(body[:cut], 7); err == nil {
			t.Errorf("cut at %d decodes", cut)
		}
	}
}

func zip(t testing.TB, b []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll(b, nil)
}

func newerSnapshot(t *testing.T, at Position) []byte {
	return zip(t, seal(fmt.Appendf(nil, `{"version":2,"position":{"number":%d},"state":[]`, at.Number)))
}

func TestSnapshotRoundTrip(t *testing.T) {
	at := Position{Number: 9, Epoch: 2, Writer: Writer{1, "i"}, Hash: Hash{1}, NextRecord: 40}
	body, err := encodeSnapshot(time.UnixMilli(5), at, []byte(" [1, \"<x>\"]\n"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := decodeSnapshot(body, 9)
	if err != nil || s.Position != at || string(s.State) != `[1, "<x>"]` || s.CreatedMs != 5 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := decodeSnapshot(body, 8); err == nil {
		t.Error("it decodes under another number")
	}
	long := []byte("[" + strings.Repeat("1,", windowBytes) + "1]") // more than the compression looks back
	if body, err = encodeSnapshot(time.UnixMilli(5), at, long); err != nil {
		t.Fatal(err)
	}
	if s, err = decodeSnapshot(body, 9); err != nil || !bytes.Equal(s.State, long) {
		t.Errorf("a long state: %d bytes, %v", len(s.State), err)
	}
	for _, bad := range []string{"", "{", "{} {}"} {
		if _, err := encodeSnapshot(time.UnixMilli(5), at, []byte(bad)); err == nil {
			t.Errorf("state %q is taken", bad)
		}
	}
	if _, err := encodeSnapshot(time.UnixMilli(5), Position{}, []byte("{}")); err == nil {
		t.Error("a snapshot of no entry is taken")
	}
}

func TestSnapshotStateIsCoveredByItsHash(t *testing.T) {
	state := `{"a":1}`
	body := fmt.Appendf(nil, `{"version":1,"position":{"number":1},"state_hash":"%s","state":%s`, Hash{}, state)
	if _, err := decodeSnapshot(zip(t, seal(body)), 1); err == nil || !strings.Contains(err.Error(), "state hash") {
		t.Error(err)
	}
}

func TestAForeignKeyIsNoPartOfTheChain(t *testing.T) {
	l := location{prefix: "p"}
	for key, want := range map[string]listed{
		l.entry(12):    {kind: entryKey, number: 12},
		l.snapshot(12): {kind: snapshotKey, number: 12},
		l.boundary(12): {kind: boundaryKey, number: 12},
		"p/12.json":    {}, "p/00000000000000000000.json": {}, "p/99999999999999999999.json": {},
		"p/-0000000000000000012.json": {}, "p/0000000000000000000x.json": {}, "p/00000000000000000012.jsonx": {},
		"p/boundary/12": {}, "p/boundary/x/00000000000000000012": {}, "p/": {}, "p/head": {},
		"p/00000000000000000012": {},
	} {
		if k, n := l.parse(key); k != want.kind || n != want.number {
			t.Errorf("%s is of kind %d, number %d", key, k, n)
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	e := Entry{Number: 7, Epoch: 3, Nonce: "n", Records: []json.RawMessage{json.RawMessage(`"x"`)}}
	body, _ := e.encode()
	f.Add(body)
	f.Add(bytes.Replace(body, []byte("\"}\n"), []byte(`","mac":"00"}`+"\n"), 1))
	f.Add(seal([]byte(`{"version":1,"number":7,"epoch":1,"nonce":"n","records":null`)))
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := decodeEntry(body, 7)
		if err != nil {
			// The checksum keeps the fuzzer out of what follows it: try the same inside a right one.
			if e, err = decodeEntry(seal(append([]byte(`{"version":1,"x":`), body...)), 7); err != nil {
				return
			}
		}
		if e.Number != 7 || e.Epoch < 1 || e.Nonce == "" || e.FirstRecord < 0 {
			t.Fatalf("decodes as %+v", e)
		}
		again, err := e.encode()
		if err != nil {
			t.Fatal(err)
		}
		if e2, err := decodeEntry(again, 7); err != nil || e2.FirstRecord != e.FirstRecord || len(e2.Records) != len(e.Records) {
			t.Fatalf("%+v comes back as %+v, %v", e, e2, err)
		}
	})
}

func FuzzDecodeSnapshot(f *testing.F) {
	body, _ := encodeSnapshot(time.UnixMilli(5), Position{Number: 9}, []byte(`[1]`))
	f.Add(body)
	f.Add([]byte(`{"version":1,"position":{"number":9},"state_hash":"","state":[]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, b := range [][]byte{body, zip(t, body), zip(t, seal(bytes.Clone(body)))} {
			if s, err := decodeSnapshot(b, 9); err == nil && (s.Position.Number != 9 || len(s.State) == 0) {
				t.Fatalf("decodes as %+v", s)
			}
		}
	})
}
