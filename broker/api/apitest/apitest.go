// Package apitest makes requests for tests of what is served.
package apitest

import (
	"encoding/binary"
	"math/rand/v2"
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/api"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// Filler makes requests whose fields all have a value, by reflection.
type Filler struct {
	Random *rand.Rand
	// Elements is how many elements an array gets; nil: up to three.
	Elements func() int
	// Text is what a string gets; nil: up to seven letters.
	Text func() string
	// Bytes is what a byte field gets; nil: up to three bytes.
	Bytes func() []byte
	// Untagged leaves unknown tagged fields out.
	Untagged bool
}

// Request is a filled request of a row in a version.
func (f *Filler) Request(e *api.Entry, version int16) kmsg.Request {
	r := kmsg.RequestForKey(int16(e.Key))
	r.SetVersion(version)
	f.fill(reflect.ValueOf(r).Elem())
	r.SetVersion(version)
	return r
}

func (f *Filler) fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		f.fillStruct(v)
	case reflect.Pointer:
		if f.Random.IntN(4) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem())
		}
	case reflect.Slice:
		if f.Bytes != nil && v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(f.Bytes())
			return
		}
		n := f.Random.IntN(4)
		if f.Elements != nil {
			n = f.Elements()
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.String:
		v.SetString(f.text())
	case reflect.Bool:
		v.SetBool(f.Random.IntN(2) == 1)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.Random.IntN(6) - 1))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(uint64(f.Random.IntN(256)))
	default:
		panic("a request has a field of kind " + v.Kind().String())
	}
}

func (f *Filler) fillStruct(v reflect.Value) {
	if tags, ok := reflect.TypeAssert[*kmsg.Tags](v.Addr()); ok {
		if !f.Untagged && f.Random.IntN(2) > 0 {
			tags.Set(100+f.Random.Uint32N(100), []byte("tag")) // above all that are known
		}
		return
	}
	for _, field := range v.Fields() {
		f.fill(field)
	}
}

func (f *Filler) text() string {
	if f.Text != nil {
		return f.Text()
	}
	b := make([]byte, f.Random.IntN(8))
	for i := range b {
		b[i] = 'a' + byte(f.Random.IntN(26))
	}
	return string(b)
}

// Frame is a request as it goes over the wire, with its size in front.
func Frame(key wire.APIKey, version int16, correlation int32, body []byte) []byte {
	b := make([]byte, 4, 4+14+len(body))
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, uint32(correlation))
	b = append(b, 0, 1, 't') // the client's id
	if api.FlexibleHeader(key, version) {
		b = append(b, 0)
	}
	b = append(b, body...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}
