package bucket

import (
	"errors"
	"testing"

	"github.com/tidemark-io/tidemark/tier/object"
)

func TestHTTPRange(t *testing.T) {
	for want, r := range map[string]object.Range{
		"bytes=0-0": {Length: 1}, "bytes=5-": {Offset: 5}, "bytes=5-14": {Offset: 5, Length: 10},
	} {
		if got := HTTPRange(r); got != want {
			t.Errorf("%+v is %s, not %s", r, got, want)
		}
	}
}

func TestWholeSize(t *testing.T) {
	for _, c := range []struct {
		header string
		length int64
		want   int64 // -1: an error
	}{
		{"", 7, 7},
		{"bytes 0-3/100", 4, 100},
		{"bytes 0-3/*", 4, -1},
		{"bytes 0-3", 4, -1},
		{"bytes 0-3/-5", 4, -1},
		{"/", 4, -1},
		{"bytes 0-3/99999999999999999999", 4, -1},
	} {
		got, err := WholeSize(c.header, c.length)
		if err != nil {
			got = -1
		}
		if got != c.want {
			t.Errorf("%q is %d, %v", c.header, got, err)
		}
	}
}

func FuzzWholeSize(f *testing.F) {
	f.Add("bytes 0-3/100", int64(4))
	f.Fuzz(func(t *testing.T, header string, length int64) {
		if n, err := WholeSize(header, max(0, length)); err == nil && n < 0 {
			t.Errorf("%q is %d bytes", header, n)
		}
	})
}

func TestMeaning(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		want   error
	}{
		{404, "NoSuchKey", object.ErrNotExist},
		{404, "NotFound", object.ErrNotExist},
		{404, "", object.ErrNotExist},
		{404, "NoSuchBucket", object.ErrDenied},
		{404, "NoSuchUpload", errNoUpload},
		{412, "PreconditionFailed", object.ErrPrecondition},
		{412, "", object.ErrPrecondition},
		{200, "PreconditionFailed", object.ErrPrecondition},
		{416, "InvalidRange", object.ErrRange},
		{301, "PermanentRedirect", object.ErrDenied},
		{401, "", object.ErrDenied},
		{403, "RequestTimeTooSkewed", object.ErrDenied},
		{400, "ExpiredToken", object.ErrDenied},
		{400, "BadDigest", object.ErrUnavailable},
		{409, "ConditionalRequestConflict", object.ErrUnavailable},
		{429, "", object.ErrUnavailable},
		{500, "InternalError", object.ErrUnavailable},
		{503, "SlowDown", object.ErrUnavailable},
		{200, "InternalError", object.ErrUnavailable},
		{0, "", object.ErrUnavailable},
		{999, "", object.ErrUnavailable},
	} {
		if got := meaning(c.status, c.code); !errors.Is(got, c.want) {
			t.Errorf("%d %s means %v", c.status, c.code, got)
		}
	}
}
