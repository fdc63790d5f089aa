package bucket

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/tier/object"
)

// HTTPRange is the header Range for a part of an object.
func HTTPRange(r object.Range) string {
	if r.Length == 0 {
		return fmt.Sprintf("bytes=%d-", r.Offset)
	}
	return fmt.Sprintf("bytes=%d-%d", r.Offset, r.Offset+r.Length-1)
}

// WholeSize is the size of the whole object, from the headers Content-Range, if there is one, and Content-Length.
func WholeSize(contentRange string, contentLength int64) (int64, error) {
	if contentRange == "" {
		return contentLength, nil
	}
	_, size, _ := strings.Cut(contentRange, "/")
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("an answer of the range %q", contentRange)
	}
	return n, nil
}
