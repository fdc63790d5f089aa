package metadata

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// emptyRecords makes an empty record of each type.
var emptyRecords = map[string]func() Record{
	"ControllerElected":  func() Record { return new(ControllerElectedRecord) },
	"NoOp":               func() Record { return new(NoOpRecord) },
	"Topic":              func() Record { return new(TopicRecord) },
	"RemoveTopic":        func() Record { return new(RemoveTopicRecord) },
	"Removal":            func() Record { return new(RemovalRecord) },
	"RemovalDone":        func() Record { return new(RemovalDoneRecord) },
	"ClusterRecovered":   func() Record { return new(ClusterRecoveredRecord) },
	"Partition":          func() Record { return new(PartitionRecord) },
	"PartitionChange":    func() Record { return new(PartitionChangeRecord) },
	"Config":             func() Record { return new(ConfigRecord) },
	"BrokerRegistration": func() Record { return new(BrokerRegistrationRecord) },
	"BrokerChange":       func() Record { return new(BrokerChangeRecord) },
	"UnregisterBroker":   func() Record { return new(UnregisterBrokerRecord) },
	"ProducerIdBlock":    func() Record { return new(ProducerIDBlockRecord) },
	"FeatureLevel":       func() Record { return new(FeatureLevelRecord) },
}

// MarshalRecord is the record as one flat JSON object, its type and version first.
func MarshalRecord(r Record) ([]byte, error) {
	kind := r.recordType()
	fields, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode %s record: %w", kind.name, err)
	}
	out := fmt.Appendf(nil, `{"type":%q,"version":%d`, kind.name, kind.version)
	if len(fields) > len("{}") {
		out = append(out, ',')
	}
	return append(out, fields[1:]...), nil
}

// UnmarshalRecord reads what MarshalRecord wrote, in any spacing. A type, a version or a field that this version doesn't know is
// an error.
func UnmarshalRecord(data []byte) (Record, error) {
	kind, fields, err := splitRecord(data)
	if err != nil {
		return nil, fmt.Errorf("decode metadata record: %w", err)
	}
	empty, ok := emptyRecords[kind.name]
	if !ok {
		return nil, fmt.Errorf("unknown metadata record type %q", kind.name)
	}
	r := empty()
	if highest := r.recordType().version; kind.version < 0 || kind.version > highest {
		return nil, fmt.Errorf("%s record: version %d is not in 0..%d", kind.name, kind.version, highest)
	}
	if err := decodeStrictly(fields, r); err != nil {
		return nil, fmt.Errorf("decode %s record: %w", kind.name, err)
	}
	return r, nil
}

// splitRecord takes type and version, which come first, from the other fields of a record.
func splitRecord(data []byte) (kind recordType, fields []byte, err error) {
	if kind, fields, ok := splitCompact(data); ok {
		return kind, fields, nil
	}
	return splitAny(data)
}

// splitAny is splitRecord for any spacing.
func splitAny(data []byte) (kind recordType, fields []byte, err error) {
	if !json.Valid(data) {
		return kind, nil, errors.New("not JSON")
	}
	kind.version = -1
	dec := json.NewDecoder(bytes.NewReader(data))
	if start, _ := dec.Token(); start != json.Delim('{') {
		return kind, nil, errors.New("not an object")
	}
	if name, _ := dec.Token(); name != "type" {
		return kind, nil, errors.New("the type is not first")
	}
	if err := dec.Decode(&kind.name); err != nil {
		return kind, nil, err
	}
	if name, _ := dec.Token(); name != "version" {
		return kind, nil, errors.New("the version is not second")
	}
	if err := dec.Decode(&kind.version); err != nil {
		return kind, nil, err
	}
	rest := bytes.TrimLeft(data[dec.InputOffset():], " \t\r\n")
	return kind, append([]byte{'{'}, bytes.TrimPrefix(rest, []byte{','})...), nil
}

// splitCompact is splitRecord for records as MarshalRecord writes them, which are all but those that people have touched. A start
// reads thousands.
func splitCompact(data []byte) (kind recordType, fields []byte, ok bool) {
	rest, ok := bytes.CutPrefix(data, []byte(`{"type":"`))
	if !ok {
		return kind, nil, false
	}
	name, rest, ok := bytes.Cut(rest, []byte(`","version":`))
	end := bytes.IndexAny(rest, ",}")
	if !ok || end < 1 || emptyRecords[string(name)] == nil {
		return kind, nil, false
	}
	version, err := strconv.Atoi(string(rest[:end]))
	if err != nil || strconv.Itoa(version) != string(rest[:end]) {
		return kind, nil, false
	}
	rest = rest[end:]
	if more, ok := bytes.CutPrefix(rest, []byte{','}); ok {
		if rest = more; !bytes.HasPrefix(rest, []byte{'"'}) {
			return kind, nil, false
		}
	}
	return recordType{string(name), version}, append([]byte{'{'}, rest...), true
}

// decodeStrictly refuses fields that v doesn't have, and anything behind the value.
func decodeStrictly(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("data after the end")
	}
	return nil
}
