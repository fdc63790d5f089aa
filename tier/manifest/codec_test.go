package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/object"
)

var sample = Segment{
	Name: Name{100, 3, "0af3"}, Start: 120, End: 250, Size: 16_000_000, AuxSize: 5000, CRC: 0xdeadbeef, AuxCRC: 0x0000000a,
	MinTimestamp: 1_800_000_000_000, MaxTimestamp: 1_800_000_060_000, Epochs: []EpochStart{{2, 120}, {3, 200}}, Aborted: true, UploadedMs: 1_800_000_100_000,
}

func samplePage() Page {
	return Page{
		Name: Name{100, 3, "0b01"}, Start: 100, End: 250, Segments: 1000, Bytes: 16_000_000_000, AuxBytes: 5_000_000,
		MaxTimestamp: 1_800_000_060_000, Size: 300_000, CRC: 0x01020304, SHA256: strings.Repeat("5a", 32),
	}
}

// TestRecordBytes pins the format: buckets live longer than programs.
func TestRecordBytes(t *testing.T) {
	clipped := sample
	clipped.Clipped, clipped.Aborted = true, false
	dropped := DroppedRange{Name{0, 2, "aa"}, 0, 120, 9000, 100}
	tests := []struct {
		record Record
		want   string
	}{
		{&AddRecord{sample}, `{"type":"add","base":100,"epoch":3,"nonce":"0af3","start":120,"end":250,"size":16000000,"aux_size":5000,` +
			`"crc32c":"deadbeef","aux_crc32c":"0000000a","min_timestamp":1800000000000,"max_timestamp":1800000060000,` +
			`"epochs":[{"epoch":2,"start":120},{"epoch":3,"start":200}],"aborted":true,"uploaded_ms":1800000100000}`},
		{&StartRecord{17}, `{"type":"start","log_start":17}`},
		{&DropRecord{[]DroppedRange{dropped}, 5}, `{"type":"drop","segments":[{"base":0,"epoch":2,"nonce":"aa","start":0,"end":120,"size":9000,"aux_size":100}],"time_ms":5}`},
		{&DeletedRecord{Segments: []Name{{0, 2, "aa"}}, Pages: []Name{{0, 3, "bb"}}}, `{"type":"deleted","segments":[{"base":0,"epoch":2,"nonce":"aa"}],"pages":[{"base":0,"epoch":3,"nonce":"bb"}]}`},
		{&CutRecord{End: 250, Segments: []DroppedRange{dropped}, Clipped: &clipped, TimeMs: 6}, `{"type":"cut","end":250,` +
			`"segments":[{"base":0,"epoch":2,"nonce":"aa","start":0,"end":120,"size":9000,"aux_size":100}],` +
			`"clipped":{"base":100,"epoch":3,"nonce":"0af3","start":120,"end":250,"size":16000000,"aux_size":5000,` +
			`"crc32c":"deadbeef","aux_crc32c":"0000000a","min_timestamp":1800000000000,"max_timestamp":1800000060000,` +
			`"epochs":[{"epoch":2,"start":120},{"epoch":3,"start":200}],"clipped":true,"uploaded_ms":1800000100000},"time_ms":6}`},
		{&LostRecord{250, 300}, `{"type":"lost","start":250,"end":300}`},
		{&CloseRecord{300}, `{"type":"close","end":300}`},
		{&PageRecord{samplePage()}, `{"type":"page","base":100,"epoch":3,"nonce":"0b01","start":100,"end":250,"segments":1000,"bytes":16000000000,` +
			`"aux_bytes":5000000,"max_timestamp":1800000060000,"size":300000,"crc32c":"01020304","sha256":"` + strings.Repeat("5a", 32) + `"}`},
	}
	seen := map[string]bool{}
	for _, test := range tests {
		seen[test.record.recordType()] = true
		got, err := MarshalRecord(test.record)
		if err != nil || string(got) != test.want {
			t.Errorf("got  %s\nwant %s\n%v", got, test.want, err)
		}
		back, err := UnmarshalRecord(got)
		if err != nil || !reflect.DeepEqual(back, test.record) {
			t.Errorf("%s comes back as %+v: %v", got, back, err)
		}
	}
	for name, empty := range emptyRecords {
		if !seen[name] || empty().recordType() != name {
			t.Errorf("%s is not tested", name)
		}
	}
}

// TestStateBytes pins what snapshots hold.
func TestStateBytes(t *testing.T) {
	p := samplePage()
	s := &State{
		Position: chain.Position{Number: 7}, LogStart: 110, End: 300, Closed: true, Epochs: []EpochStart{{2, 110}},
		Pages: []Page{p}, Lost: []Range{{250, 300}},
		Dropped: []Dropped{{DroppedRange{Name{0, 2, "aa"}, 0, 100, 9000, 100}, false, 5}, {DroppedRange{Name: Name{0, 2, "bb"}, End: 100, Size: 700}, true, 5}},
	}
	s.count()
	got, err := s.encode()
	want := `{"version":1,"log_start":110,"end":300,"closed":true,"epochs":[{"epoch":2,"start":110}],` +
		`"pages":[{"base":100,"epoch":3,"nonce":"0b01","start":100,"end":250,"segments":1000,"bytes":16000000000,"aux_bytes":5000000,` +
		`"max_timestamp":1800000060000,"size":300000,"crc32c":"01020304","sha256":"` + strings.Repeat("5a", 32) + `"}],"lost":[{"start":250,"end":300}],` +
		`"dropped":[{"base":0,"epoch":2,"nonce":"aa","start":0,"end":100,"size":9000,"aux_size":100,"time_ms":5},` +
		`{"base":0,"epoch":2,"nonce":"bb","start":0,"end":100,"size":700,"page":true,"time_ms":5}]}`
	if err != nil || string(got) != want {
		t.Errorf("got  %s\nwant %s\n%v", got, want, err)
	}
	back, err := decodeState(got)
	if err != nil {
		t.Fatal(err)
	}
	back.Position = s.Position
	if !reflect.DeepEqual(back, s) {
		t.Errorf("comes back as %+v", back)
	}
	if empty, err := new(State).encode(); err != nil || string(empty) != `{"version":1,"log_start":0,"end":0}` {
		t.Errorf("an empty state is %s: %v", empty, err)
	}
}

// TestPageBytes pins page objects.
func TestPageBytes(t *testing.T) {
	second := sample
	second.Name, second.Start, second.End, second.Epochs, second.Aborted = Name{250, 3, "0af4"}, 250, 300, []EpochStart{{3, 250}}, false
	got, err := encodePage([]Segment{sample, second})
	want := `{"version":1,"segments":[
{"base":100,"epoch":3,"nonce":"0af3","start":120,"end":250,"size":16000000,"aux_size":5000,"crc32c":"deadbeef","aux_crc32c":"0000000a",` +
		`"min_timestamp":1800000000000,"max_timestamp":1800000060000,"epochs":[{"epoch":2,"start":120},{"epoch":3,"start":200}],"aborted":true,"uploaded_ms":1800000100000},
{"base":250,"epoch":3,"nonce":"0af4","start":250,"end":300,"size":16000000,"aux_size":5000,"crc32c":"deadbeef","aux_crc32c":"0000000a",` +
		`"min_timestamp":1800000000000,"max_timestamp":1800000060000,"epochs":[{"epoch":3,"start":250}],"uploaded_ms":1800000100000}
]}
`
	if err != nil || string(got) != want {
		t.Errorf("got  %s\nwant %s\n%v", got, want, err)
	}
	sum := sha256.Sum256(got)
	p := Page{Name: Name{120, 3, "p"}, Size: int64(len(got)), CRC: Checksum(crc32.Checksum(got, castagnoli)), SHA256: hex.EncodeToString(sum[:])}
	p.describe([]Segment{sample, second})
	if back, err := decodePage(got, p); err != nil || !reflect.DeepEqual(back, []Segment{sample, second}) {
		t.Errorf("comes back as %+v: %v", back, err)
	}
	for name, spoil := range map[string]func(*Page){
		"another size":      func(p *Page) { p.Size++ },
		"another checksum":  func(p *Page) { p.CRC++ },
		"another hash":      func(p *Page) { p.SHA256 = strings.Repeat("0", 64) },
		"fewer segments":    func(p *Page) { p.Segments-- },
		"more bytes":        func(p *Page) { p.Bytes++ },
		"earlier times":     func(p *Page) { p.MaxTimestamp-- },
		"an end before one": func(p *Page) { p.End-- },
	} {
		wrong := p
		spoil(&wrong)
		if segments, err := decodePage(got, wrong); err == nil {
			t.Errorf("%s: %+v", name, segments)
		}
	}
}

func TestAStateThatCannotBeIsRefused(t *testing.T) {
	const segment = `{"base":0,"epoch":0,"nonce":"a","start":0,"end":10,"size":1,"aux_size":1,"crc32c":"00000000","aux_crc32c":"00000000",` +
		`"min_timestamp":0,"max_timestamp":0,"epochs":[{"epoch":0,"start":0}],"uploaded_ms":0}`
	if _, err := decodeState([]byte(`{"version":1,"log_start":0,"end":10,"segments":[` + segment + `]}`)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"another version":         `{"version":2,"log_start":0,"end":0}`,
		"no version":              `{"log_start":0,"end":0}`,
		"a field":                 `{"version":1,"log_start":0,"end":0,"new":1}`,
		"more behind it":          `{"version":1,"log_start":0,"end":0} {}`,
		"the end below the start": `{"version":1,"log_start":1,"end":0}`,
		"a gap at the end":        `{"version":1,"log_start":0,"end":11,"segments":[` + segment + `]}`,
		"a segment above the end": `{"version":1,"log_start":0,"end":9,"segments":[` + segment + `]}`,
		"one segment twice":       `{"version":1,"log_start":0,"end":10,"segments":[` + segment + `,` + segment + `]}`,
		"a lineage above":         `{"version":1,"log_start":0,"end":10,"epochs":[{"epoch":0,"start":10}],"segments":[` + segment + `]}`,
		"nothing lost":            `{"version":1,"log_start":0,"end":10,"lost":[{"start":5,"end":5}],"segments":[` + segment + `]}`,
		"a page of nothing":       `{"version":1,"log_start":0,"end":10,"pages":[{"base":0,"epoch":0,"nonce":"a","start":0,"end":10}]}`,
	} {
		if s, err := decodeState([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

func TestKeys(t *testing.T) {
	n := Name{1234, 7, "0aF_9"}
	for kind, want := range map[Kind]string{
		LogObject: "00000000000000001234-7-0aF_9.log", AuxObject: "00000000000000001234-7-0aF_9.aux", PageObject: "pages/00000000000000001234-7-0aF_9.json",
	} {
		if got := n.Key(kind); got != want {
			t.Errorf("key %s", got)
		}
		if name, k, ok := ParseKey(want); !ok || name != n || k != kind {
			t.Errorf("%s is %+v %v %v", want, name, k, ok)
		}
	}
	for _, key := range []string{
		"", ".log", "x.log", "00000000000000001234-7-.log", "1234-7-a.log", "00000000000000001234-07-a.log", "00000000000000001234-7-a-b.log",
		"00000000000000001234--7-a.log", "-0000000000000001234-7-a.log", "00000000000000001234-7-a.json", "pages/00000000000000001234-7-a.log",
		"manifest/00000000000000000001.json", "pages/pages/00000000000000001234-7-a.json", "00000000000000001234-99999999999-a.log",
		"00000000000000001234-7-" + strings.Repeat("a", 65) + ".log",
	} {
		if name, kind, ok := ParseKey(key); ok {
			t.Errorf("%q is %+v, %d", key, name, kind)
		}
	}
	if got := Prefix("orders", [16]byte{15: 1}, 3); got != "topics/orders.AAAAAAAAAAAAAAAAAAAAAQ/3" {
		t.Errorf("prefix %s", got)
	}
	longest := strings.Repeat("t", 249)
	if got := Prefix(longest, [16]byte{15: 1}, 3); !object.ValidKey(got) {
		t.Errorf("a topic with the longest name has the prefix %s, which not every store can hold", got)
	}
}

// FuzzUnmarshalRecord: whatever is in a chain is read or refused, and what was read means the same when it is written again.
func FuzzUnmarshalRecord(f *testing.F) {
	for _, r := range []Record{&AddRecord{sample}, &StartRecord{1}, &DropRecord{}, &DeletedRecord{}, &CutRecord{Clipped: &sample}, &LostRecord{}, &CloseRecord{}, &PageRecord{samplePage()}} {
		b, err := MarshalRecord(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"type":"add",}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := UnmarshalRecord(data)
		if err != nil {
			return
		}
		b, err := MarshalRecord(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := UnmarshalRecord(b)
		if err != nil {
			t.Fatal(err)
		}
		if b2, err := MarshalRecord(again); err != nil || !bytes.Equal(b, b2) {
			t.Fatalf("%s becomes %s: %v", b, b2, err)
		}
		// No record breaks a state: it is refused, or what comes of it holds.
		first, _ := MarshalRecord(&AddRecord{Segment{Name: Name{0, 3, "z"}, End: 120, Size: 9, AuxSize: 9, Epochs: []EpochStart{{1, 0}}}})
		s, err := new(State).apply(4, []json.RawMessage{first})
		if err != nil {
			t.Fatal(err)
		}
		if s, err = s.apply(4, []json.RawMessage{data}); err == nil {
			if err := s.check(); err != nil {
				t.Fatalf("%s leads to %+v: %v", data, s, err)
			}
		}
	})
}

// FuzzDecodeState: a snapshot's state is read or refused.
func FuzzDecodeState(f *testing.F) {
	s := &State{LogStart: 120, End: 250, Tail: []Segment{sample}, Epochs: sample.Epochs}
	b, err := s.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decodeState(data)
		if err != nil {
			return
		}
		b, err := s.encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeState(b)
		if err != nil {
			t.Fatal(err)
		}
		if b2, err := again.encode(); err != nil || !bytes.Equal(b, b2) {
			t.Fatalf("%s becomes %s: %v", b, b2, err)
		}
	})
}
