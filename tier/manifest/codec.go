package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// emptyRecords makes an empty record of each type. "replace" is reserved: several segments will give way to one that was made
// of them.
var emptyRecords = map[string]func() Record{
	"add":     func() Record { return new(AddRecord) },
	"start":   func() Record { return new(StartRecord) },
	"drop":    func() Record { return new(DropRecord) },
	"deleted": func() Record { return new(DeletedRecord) },
	"cut":     func() Record { return new(CutRecord) },
	"lost":    func() Record { return new(LostRecord) },
	"close":   func() Record { return new(CloseRecord) },
	"page":    func() Record { return new(PageRecord) },
}

const typeField = `{"type":"`

// MarshalRecord is the record as one flat JSON object, its type first.
func MarshalRecord(r Record) ([]byte, error) {
	fields, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode %s record: %w", r.recordType(), err)
	}
	return append(append([]byte(typeField), r.recordType()+`",`...), fields[1:]...), nil // no record is without fields
}

// UnmarshalRecord reads what MarshalRecord has written. A type or a field that this version doesn't know is an error: to pass
// over it could hide that an object is gone.
func UnmarshalRecord(data []byte) (Record, error) {
	rest, ok := bytes.CutPrefix(data, []byte(typeField))
	name, fields, ok2 := bytes.Cut(rest, []byte(`",`))
	if !ok || !ok2 {
		return nil, fmt.Errorf("manifest record does not begin with %s", typeField)
	}
	empty, ok := emptyRecords[string(name)]
	if !ok {
		return nil, fmt.Errorf("unknown manifest record type %q", name)
	}
	r := empty()
	if err := decodeStrictly(io.MultiReader(bytes.NewReader([]byte{'{'}), bytes.NewReader(fields)), r); err != nil {
		return nil, fmt.Errorf("decode %s record: %w", name, err)
	}
	return r, nil
}

// decodeStrictly reads one JSON value, all of whose fields have to be known.
func decodeStrictly(from io.Reader, v any) error {
	d := json.NewDecoder(from)
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more follows behind the JSON value")
	}
	return nil
}

// stateVersion is the version of a state in a snapshot.
const stateVersion = 1

type versionedState struct {
	Version int `json:"version"`
	*State
}

// encode is the state as snapshots hold it: equal states have equal bytes.
func (s *State) encode() ([]byte, error) {
	b, err := json.Marshal(versionedState{stateVersion, s})
	if err != nil {
		return nil, fmt.Errorf("encode state: %w", err)
	}
	return b, nil
}

// decodeState reads what encode has written; its position is for the caller to fill in.
func decodeState(data []byte) (*State, error) {
	v := versionedState{State: new(State)}
	if err := decodeStrictly(bytes.NewReader(data), &v); err != nil {
		return nil, fmt.Errorf("decode state: %w", err)
	}
	if v.Version != stateVersion {
		return nil, fmt.Errorf("state has version %d, this program knows %d", v.Version, stateVersion)
	}
	v.count()
	if err := v.check(); err != nil {
		return nil, fmt.Errorf("decode state: %w", err)
	}
	return v.State, nil
}
