package metadata

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// typed are the fields that every record begins with.
type typed struct {
	Type    string `json:"type"`
	Version int    `json:"version"`
}

// recordKinds gives for each type an empty record, and the struct to decode it by: the record with the fields of typed.
var recordKinds = map[string]func() (any, Record){
	"ControllerElected": func() (any, Record) {
		v := new(struct {
			typed
			ControllerElectedRecord
		})
		return v, &v.ControllerElectedRecord
	},
	"NoOp": func() (any, Record) {
		v := new(struct {
			typed
			NoOpRecord
		})
		return v, &v.NoOpRecord
	},
	"Topic": func() (any, Record) {
		v := new(struct {
			typed
			TopicRecord
		})
		return v, &v.TopicRecord
	},
	"RemoveTopic": func() (any, Record) {
		v := new(struct {
			typed
			RemoveTopicRecord
		})
		return v, &v.RemoveTopicRecord
	},
	"Partition": func() (any, Record) {
		v := new(struct {
			typed
			PartitionRecord
		})
		return v, &v.PartitionRecord
	},
	"PartitionChange": func() (any, Record) {
		v := new(struct {
			typed
			PartitionChangeRecord
		})
		return v, &v.PartitionChangeRecord
	},
	"Config": func() (any, Record) {
		v := new(struct {
			typed
			ConfigRecord
		})
		return v, &v.ConfigRecord
	},
	"BrokerRegistration": func() (any, Record) {
		v := new(struct {
			typed
			BrokerRegistrationRecord
		})
		return v, &v.BrokerRegistrationRecord
	},
	"BrokerChange": func() (any, Record) {
		v := new(struct {
			typed
			BrokerChangeRecord
		})
		return v, &v.BrokerChangeRecord
	},
	"UnregisterBroker": func() (any, Record) {
		v := new(struct {
			typed
			UnregisterBrokerRecord
		})
		return v, &v.UnregisterBrokerRecord
	},
	"ProducerIdBlock": func() (any, Record) {
		v := new(struct {
			typed
			ProducerIDBlockRecord
		})
		return v, &v.ProducerIDBlockRecord
	},
	"FeatureLevel": func() (any, Record) {
		v := new(struct {
			typed
			FeatureLevelRecord
		})
		return v, &v.FeatureLevelRecord
	},
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

// UnmarshalRecord reads what MarshalRecord wrote. A type, a version or a field that this version doesn't know is an error.
func UnmarshalRecord(data []byte) (Record, error) {
	head := typed{Version: -1}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("decode metadata record: %w", err)
	}
	kind, ok := recordKinds[head.Type]
	if !ok {
		return nil, fmt.Errorf("unknown metadata record type %q", head.Type)
	}
	target, r := kind()
	if highest := r.recordType().version; head.Version < 0 || head.Version > highest {
		return nil, fmt.Errorf("%s record: version is missing or not in 0..%d", head.Type, highest)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(target); err != nil {
		return nil, fmt.Errorf("decode %s record: %w", head.Type, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("decode %s record: data after the record", head.Type)
	}
	return r, nil
}
