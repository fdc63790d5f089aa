package object

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// Outcome is what is known of a conditional put.
type Outcome int8

// The outcomes of a conditional put. Unknown is the zero value: whoever forgets to decide has not decided.
const (
	Unknown Outcome = iota // it may have been carried out, and may still be: neither act on it nor call it failed
	Done                   // carried out
	Lost                   // it does not stand and never will: somebody else's put does (under Match, maybe on top of ours)
)

func (o Outcome) String() string {
	switch o {
	case Done:
		return "done"
	case Lost:
		return "lost"
	}
	return "unknown"
}

// Settled is a put's outcome, with what was read back.
type Settled struct {
	Outcome Outcome
	Body    []byte // what stands under the key; nil where there is nothing or where that is not known
	Token   Token  // of Body
}

// settleTries bounds how often Settle sends the same body. It makes no pauses: whoever wants more waits and calls again.
const settleTries = 3

// Settle puts body under key and finds out what became of it, by reading back whatever the answer was: some stores ignore
// conditions while they lack a quorum, a 412 may be the echo of our own lost answer, and a time-out says nothing. As long
// as the old state stands, the same body is sent again under the same condition, at most settleTries times.
//
// body must differ from every body that was or will ever be put under this key (it carries a nonce), and cond must not be
// Always. limit bounds what is read back. The error says why the outcome is Unknown; it is nil otherwise.
func Settle(ctx context.Context, s Store, key string, body []byte, cond Condition, limit int64) (Settled, error) {
	var putErr, readErr error
	for range settleTries {
		_, putErr = s.Put(ctx, key, bytes.NewReader(body), cond)
		var found []byte
		var token Token
		found, token, readErr = Read(ctx, s, key, limit)
		switch {
		case readErr == nil && bytes.Equal(found, body):
			return Settled{Outcome: Done, Body: found, Token: token}, nil
		case readErr == nil && (cond.Kind == Absent || token != cond.Token):
			return Settled{Outcome: Lost, Body: found, Token: token}, nil
		case errors.Is(readErr, ErrNotExist) && cond.Kind == Match:
			return Settled{Outcome: Lost}, nil
		}
		if ctx.Err() != nil || errors.Is(putErr, ErrKey) {
			break
		}
	}
	return Settled{}, fmt.Errorf("settle put of %s: %w", key, errors.Join(putErr, readErr))
}

// Read returns a whole object of at most limit bytes, with its token.
func Read(ctx context.Context, s Store, key string, limit int64) ([]byte, Token, error) {
	o, err := s.Get(ctx, key, Range{})
	if err != nil {
		return nil, "", err
	}
	defer o.Body.Close()
	if o.Size > limit {
		return nil, "", fmt.Errorf("read %s of %d bytes: %w", key, o.Size, ErrTooLarge)
	}
	// The size is known: one exact buffer, and one byte more to notice a body that goes on.
	b := make([]byte, o.Size)
	if _, err := io.ReadFull(o.Body, b); err != nil {
		return nil, "", fmt.Errorf("read %s: %w", key, err)
	}
	if n, _ := o.Body.Read(make([]byte, 1)); n != 0 {
		return nil, "", fmt.Errorf("read %s past its %d bytes: %w", key, o.Size, ErrTooLarge)
	}
	return b, o.Token, nil
}
