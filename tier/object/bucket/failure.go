package bucket

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/tidemark-io/tidemark/tier/object"
)

// errNoUpload: the upload was completed or given up, and nobody says which.
var errNoUpload = fmt.Errorf("%w: no such upload", object.ErrUnavailable)

// errBody: what is to be put cannot be read.
var errBody = errors.New("read body")

// failed turns a client's error into one of package object, and nil into nil. Whatever does not say for certain that the request was
// refused is ErrUnavailable: a status that nobody expects, a broken connection, a context that is done.
func (s *Store) failed(op, key string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, object.ErrKey), errors.Is(err, object.ErrRange), errors.Is(err, errOrder), errors.Is(err, errBody):
		return fmt.Errorf("%s %s: %w", op, key, err)
	}
	status, code := s.client.Status(err)
	return fmt.Errorf("%s %s: %w: %w", op, key, meaning(status, code), err)
}

// meaning is what a status and S3's code say of a request. A 404 is an object that does not exist only if it is not
// something else that is missing: a bucket that is gone must not look like an empty one.
func meaning(status int, code string) error {
	switch code {
	case "NoSuchUpload":
		return errNoUpload
	case "PreconditionFailed":
		return object.ErrPrecondition // completing an upload may say so with the status 200
	case "NoSuchBucket", "InvalidBucketName",
		"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "RequestTimeTooSkewed",
		"ExpiredToken", "InvalidToken", "TokenRefreshRequired",
		"PermanentRedirect", "AuthorizationHeaderMalformed":
		return object.ErrDenied
	}
	switch status {
	case http.StatusNotFound:
		return object.ErrNotExist
	case http.StatusPreconditionFailed:
		return object.ErrPrecondition
	case http.StatusRequestedRangeNotSatisfiable:
		return object.ErrRange
	case http.StatusMovedPermanently, http.StatusUnauthorized, http.StatusForbidden:
		return object.ErrDenied
	}
	return object.ErrUnavailable
}
