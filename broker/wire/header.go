package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// APIKey numbers a request type of the protocol.
type APIKey int16

// MinRequestSize is the smallest frame body that can hold a request header: key, version and correlation id (a
// header without client id ends there only in version 0, which nobody sends; a null client id takes two bytes more).
const MinRequestSize = 8

var (
	errShortHeader   = errors.New("request header is cut short")
	errShortResponse = errors.New("response header is cut short")
)

// RequestHeader is what precedes every request body (RequestHeader.json, versions 1 and 2).
type RequestHeader struct {
	Key           APIKey
	Version       int16
	CorrelationID int32
	ClientID      *string
}

// FlexibleHeaders tells for a key and version whether request header v2 and response header v1, both with a tag
// buffer, are in use.
type FlexibleHeaders func(key APIKey, version int16) bool

// ParseRequestHeader splits the body of a frame into its header and the request's body. The header shares no memory
// with frame, the body aliases it.
func ParseRequestHeader(frame []byte, flexible FlexibleHeaders) (RequestHeader, []byte, error) {
	var h RequestHeader
	if len(frame) < MinRequestSize+2 {
		return h, nil, errShortHeader
	}
	h.Key = APIKey(binary.BigEndian.Uint16(frame))
	h.Version = int16(binary.BigEndian.Uint16(frame[2:]))
	h.CorrelationID = int32(binary.BigEndian.Uint32(frame[4:]))
	length := int16(binary.BigEndian.Uint16(frame[8:]))
	rest := frame[10:]
	if length >= 0 {
		if int(length) > len(rest) {
			return h, nil, errShortHeader
		}
		id := string(rest[:length])
		h.ClientID, rest = &id, rest[length:]
	} else if length != -1 {
		return h, nil, fmt.Errorf("client id of length %d", length)
	}
	if !flexible(h.Key, h.Version) {
		return h, rest, nil
	}
	rest, err := skipTags(rest)
	return h, rest, err
}

// maxTags bounds the tagged fields of a header, as Kafka 4.4's reader does.
const maxTags = 10_000

func skipTags(b []byte) ([]byte, error) {
	count, n := binary.Uvarint(b)
	if n <= 0 || count > maxTags {
		return nil, errShortHeader
	}
	b = b[n:]
	for range count {
		_, n = binary.Uvarint(b) // the tag's number
		if n <= 0 {
			return nil, errShortHeader
		}
		b = b[n:]
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, errShortHeader
		}
		b = b[n+int(size):]
	}
	return b, nil
}

// AppendResponseHeader appends the four size bytes, still zero, and the header of a response. FinishFrame fills the size
// in once the body follows.
func AppendResponseHeader(dst []byte, correlationID int32, tagBuffer bool) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if tagBuffer {
		dst = append(dst, 0)
	}
	return dst
}

// FinishFrame writes the size of a frame into its first four bytes; more is what follows outside the slice.
func FinishFrame(frame []byte, more int) {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4+more))
}

// AppendRequestHeader appends the four size bytes, still zero, and the header of a request: version 2, with an empty tag
// buffer, where flexible, else version 1. FinishFrame fills the size in once the body follows.
func AppendRequestHeader(dst []byte, h RequestHeader, flexible bool) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.Key))
	dst = binary.BigEndian.AppendUint16(dst, uint16(h.Version))
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.CorrelationID))
	if h.ClientID == nil {
		dst = binary.BigEndian.AppendUint16(dst, 0xffff)
	} else {
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(*h.ClientID)))
		dst = append(dst, *h.ClientID...)
	}
	if flexible {
		dst = append(dst, 0)
	}
	return dst
}

// ParseResponseHeader splits the body of a response frame into its correlation id and the response's body, which aliases
// frame.
func ParseResponseHeader(frame []byte, tagBuffer bool) (correlationID int32, body []byte, err error) {
	if len(frame) < 4 {
		return 0, nil, errShortResponse
	}
	correlationID, body = int32(binary.BigEndian.Uint32(frame)), frame[4:]
	if tagBuffer {
		if body, err = skipTags(body); err != nil {
			return 0, nil, errShortResponse
		}
	}
	return correlationID, body, nil
}
