package api_test

import (
	"math/rand/v2"
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/api"
)

// filler makes requests whose fields all have a value, by reflection.
type filler struct {
	random *rand.Rand
	// elements is how many an array gets; nil: up to three.
	elements func() int
	untagged bool // no unknown tagged fields
	// text is what a string gets; nil: up to seven letters.
	text func() string
}

// request is a filled request of a row in a version.
func (f *filler) request(e *api.Entry, version int16) kmsg.Request {
	r := kmsg.RequestForKey(int16(e.Key))
	r.SetVersion(version)
	f.fill(reflect.ValueOf(r).Elem())
	r.SetVersion(version)
	return r
}

func (f *filler) fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if tags, ok := v.Addr().Interface().(*kmsg.Tags); ok {
			if !f.untagged && f.random.IntN(2) > 0 {
				tags.Set(100+f.random.Uint32N(100), []byte("tag"))
			}
			return
		}
		for i := range v.NumField() {
			f.fill(v.Field(i))
		}
	case reflect.Pointer:
		if f.random.IntN(4) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem())
		}
	case reflect.Slice:
		n := f.random.IntN(4)
		if f.elements != nil && v.Type().Elem().Kind() != reflect.Uint8 {
			n = f.elements()
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.String:
		v.SetString(f.string())
	case reflect.Bool:
		v.SetBool(f.random.IntN(2) == 1)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.random.IntN(6) - 1))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(uint64(f.random.IntN(256)))
	}
}

func (f *filler) string() string {
	if f.text != nil {
		return f.text()
	}
	b := make([]byte, f.random.IntN(8))
	for i := range b {
		b[i] = 'a' + byte(f.random.IntN(26))
	}
	return string(b)
}
