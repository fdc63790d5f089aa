package api

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/broker/config"
)

// A layout is the shape of a request's body. It is written as the fields in their order: 1, 2, 4, 8 and 16 are fixed numbers of
// bytes, s is a string, b are bytes, (...) is an array of structures, [...] one of plain values, {...} a structure. Behind a field
// stands ? if it may be null (?3+: from version 3 on), and then its versions: @3, @3+, @3-5; without, it is in all.
//
// Bodies are walked by their layout before they are decoded. That allocates nothing, and decoding makes a request up to fifty times
// as large as it came: an element of three bytes is a structure of eighty, a tagged field of three bytes an entry of a map. Refused
// is what ends too early, holds more elements than anybody needs, a string that is too long, or a null where Kafka takes none.
type layout struct {
	fields   []field
	flexible bool // strings and arrays have compact lengths, structures end with tagged fields
}

// field is one step of a walk.
type field struct {
	kind     fieldKind
	size     int     // of fixed ones
	of       *layout // the elements of an array, or the structure
	nullable bool
}

type fieldKind int8

const (
	fixedField fieldKind = iota
	stringField
	bytesField
	structArray
	valueArray
	structure
)

// taggedFieldElements is how many elements a tagged field counts as: a map with one entry takes 300 bytes.
const taggedFieldElements = 4

var (
	errShort    = errors.New("body ends too early")
	errNull     = errors.New("null where none may be")
	errString   = errors.New("string is too long")
	errElements = errors.New("too many elements")
)

// parseLayout reads a layout for one version. It panics if the notation is wrong.
func parseLayout(notation string, version int16, flexible bool) *layout {
	fields, rest := parseFields(strings.NewReplacer("(", "( ", ")", " )", "[", "[ ", "]", " ]", "{", "{ ", "}", " }").Replace(notation), version, flexible)
	if rest != "" {
		panic(fmt.Sprintf("layout %q: %q is left", notation, rest))
	}
	return &layout{fields: fields, flexible: flexible}
}

// parseFields reads up to the end of a group.
func parseFields(tokens string, version int16, flexible bool) (fields []field, rest string) {
	for rest = strings.TrimSpace(tokens); rest != ""; rest = strings.TrimSpace(rest) {
		var token string
		token, rest, _ = strings.Cut(rest, " ")
		var f field
		switch token[0] {
		case ')', ']', '}':
			return fields, token + " " + rest
		case '(', '[', '{':
			f.kind = map[byte]fieldKind{'(': structArray, '[': valueArray, '{': structure}[token[0]]
			f.of = &layout{flexible: flexible}
			f.of.fields, rest = parseFields(rest, version, flexible)
			token, rest, _ = strings.Cut(rest, " ")
		case 's':
			f.kind = stringField
		case 'b':
			f.kind = bytesField
		default:
			size, _, _ := strings.Cut(token, "@")
			f.size = number(size)
		}
		token, versions, some := strings.Cut(token, "@")
		if _, from, ok := strings.Cut(token, "?"); ok {
			f.nullable = from == "" || inVersions(from, version)
		}
		if !some || inVersions(versions, version) {
			fields = append(fields, f)
		}
	}
	return fields, ""
}

// inVersions reads 3, 3+ or 3-5.
func inVersions(versions string, version int16) bool {
	first, last, ranged := strings.Cut(versions, "-")
	switch {
	case ranged:
		return int(version) >= number(first) && int(version) <= number(last)
	case strings.HasSuffix(versions, "+"):
		return int(version) >= number(strings.TrimSuffix(versions, "+"))
	}
	return int(version) == number(versions)
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// check walks a body and refuses one that must not be decoded.
func (l *layout) check(body []byte) error {
	w := bodyWalk{rest: body, elements: config.RequestElementsMax}
	return w.structure(l)
}

// bodyWalk is the state of a walk.
type bodyWalk struct {
	rest     []byte
	elements int // that may still come
}

func (w *bodyWalk) structure(l *layout) error {
	if err := w.values(l); err != nil || !l.flexible {
		return err
	}
	return w.tags()
}

func (w *bodyWalk) values(l *layout) error {
	for i := range l.fields {
		if err := w.value(&l.fields[i], l.flexible); err != nil {
			return err
		}
	}
	return nil
}

func (w *bodyWalk) value(f *field, flexible bool) error {
	switch f.kind {
	case fixedField:
		return w.skip(f.size)
	case stringField:
		return w.sized(f, flexible, 2, math.MaxInt16) // Kafka's bound, in versions with compact lengths too
	case bytesField:
		return w.sized(f, flexible, 4, math.MaxInt32)
	case structure:
		return w.nullable(f)
	case structArray, valueArray:
		return w.array(f, flexible)
	}
	return nil
}

// nullable steps over a structure behind the byte that tells whether it is there.
func (w *bodyWalk) nullable(f *field) error {
	if len(w.rest) == 0 {
		return errShort
	}
	present := int8(w.rest[0]) >= 0
	w.rest = w.rest[1:]
	if !present {
		return nil
	}
	return w.structure(f.of)
}

// sized steps over a length and what is as long.
func (w *bodyWalk) sized(f *field, flexible bool, width, limit int) error {
	n, err := w.length(f, flexible, width)
	if err != nil {
		return err
	}
	if n > limit {
		return errString
	}
	return w.skip(n)
}

func (w *bodyWalk) array(f *field, flexible bool) error {
	n, err := w.length(f, flexible, 4)
	if err != nil {
		return err
	}
	if n > len(w.rest) {
		return errShort
	}
	if w.elements -= n; w.elements < 0 {
		return errElements
	}
	for range n {
		if f.kind == structArray {
			err = w.structure(f.of)
		} else {
			err = w.values(f.of)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tags steps over tagged fields.
func (w *bodyWalk) tags() error {
	n, err := w.uvarint()
	if err != nil {
		return err
	}
	if n > config.TaggedFieldsMax {
		return errElements
	}
	if w.elements -= n * taggedFieldElements; w.elements < 0 {
		return errElements
	}
	for range n {
		if _, err := w.uvarint(); err != nil {
			return err
		}
		size, err := w.uvarint()
		if err != nil {
			return err
		}
		if err := w.skip(size); err != nil {
			return err
		}
	}
	return nil
}

// length reads the length of a field; that of null is 0.
func (w *bodyWalk) length(f *field, flexible bool, width int) (int, error) {
	var n int
	switch {
	case flexible:
		v, err := w.uvarint()
		if err != nil {
			return 0, err
		}
		n = int(int32(v)) - 1 // as Kafka does: larger ones are negative
	case len(w.rest) < width:
		return 0, errShort
	case width == 2:
		n = int(int16(binary.BigEndian.Uint16(w.rest)))
		w.rest = w.rest[2:]
	default:
		n = int(int32(binary.BigEndian.Uint32(w.rest)))
		w.rest = w.rest[4:]
	}
	if n < 0 && !f.nullable {
		return 0, errNull
	}
	return max(n, 0), nil
}

func (w *bodyWalk) uvarint() (int, error) {
	n, size := binary.Uvarint(w.rest)
	if size <= 0 || n > 1<<32-1 {
		return 0, errShort
	}
	w.rest = w.rest[size:]
	return int(n), nil
}

func (w *bodyWalk) skip(n int) error {
	if n > len(w.rest) {
		return errShort
	}
	w.rest = w.rest[n:]
	return nil
}
