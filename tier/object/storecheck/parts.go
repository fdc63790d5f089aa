package storecheck

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/tidemark-io/tidemark/tier/object"
)

// parts tries uploads in several requests, on stores that have them: the condition is that of the last request.
func parts(t *trial) error {
	s, ok := t.store.(object.Parted)
	if !ok || s.PartBytes(math.MaxInt64) == 0 {
		return nil
	}
	if _, err := t.uploadOK(s, "k", "first", object.IfAbsent()); err != nil {
		return err
	}
	_, err := t.upload(s, "k", "second", object.IfAbsent())
	if err := refused("a second create by an upload", err, object.ErrPrecondition); err != nil {
		return err
	}
	_, err = t.put("k", "whole", object.IfAbsent())
	if err := refused("a second create after an upload", err, object.ErrPrecondition); err != nil {
		return err
	}
	other, err := t.putOK("other", "other", object.Condition{})
	if err != nil {
		return err
	}
	_, err = t.upload(s, "k", "third", object.IfMatch(other))
	if err := refused("an upload with a wrong token", err, object.ErrPrecondition); err != nil {
		return err
	}
	if err := t.holds("k", partsOf("first")); err != nil {
		return err
	}
	// The token of an upload is as good as any.
	_, token, err := object.Read(t.ctx, t.store, t.folder+"k", 1<<30)
	if err != nil {
		return err
	}
	if _, err := t.uploadOK(s, "k", "fourth", object.IfMatch(token)); err != nil {
		return err
	}
	return firstError(
		func() error { return t.holds("k", partsOf("fourth")) },
		func() error { return t.uploadRace(s) },
		func() error { return t.abandons(s) },
	)
}

// smallestPart is the smallest that S3 takes before the last one.
const smallestPart = 5 << 20

// partsOf is the body of an upload: a part of the smallest size and a short one.
func partsOf(mark string) string {
	return strings.Repeat(mark[:1], smallestPart) + mark
}

func (t *trial) upload(s object.Parted, key, mark string, cond object.Condition) (object.Token, error) {
	id, err := s.BeginUpload(t.ctx, t.folder+key)
	if err != nil {
		return "", fmt.Errorf("begin an upload: %w", err)
	}
	var stored []object.Part
	body := []byte(partsOf(mark))
	for i, b := range [][]byte{body[:smallestPart], body[smallestPart:]} {
		part, err := s.PutPart(t.ctx, t.folder+key, id, i+1, bytes.NewReader(b))
		if err != nil {
			return "", fmt.Errorf("put part %d: %w", i+1, err)
		}
		stored = append(stored, part)
	}
	token, err := s.CompleteUpload(t.ctx, t.folder+key, id, stored, cond)
	if err != nil {
		_ = s.AbortUpload(t.ctx, t.folder+key, id)
	}
	return token, err
}

func (t *trial) uploadOK(s object.Parted, key, mark string, cond object.Condition) (object.Token, error) {
	token, err := t.upload(s, key, mark, cond)
	if err != nil {
		return "", fmt.Errorf("an upload that must succeed: %w", err)
	}
	if token == "" {
		return "", errors.New("an upload brings no token")
	}
	return token, nil
}

// uploadRace lets uploads compete for one key.
func (t *trial) uploadRace(s object.Parted) error {
	const uploads = 4
	errs := make([]error, uploads)
	mark := func(i int) string { return fmt.Sprintf("%d is the upload", i) }
	t.run(uploads, func(i int) { _, errs[i] = t.upload(s, "race", mark(i), object.IfAbsent()) })
	won := -1
	for i, err := range errs {
		switch {
		case err == nil && won >= 0:
			return fmt.Errorf("uploads %d and %d both won", won, i)
		case err == nil:
			won = i
		case !errors.Is(err, object.ErrPrecondition) && !errors.Is(err, object.ErrUnavailable):
			return fmt.Errorf("upload %d: %w", i, err)
		}
	}
	if won < 0 {
		return fmt.Errorf("no upload won: %w", errors.Join(errs...))
	}
	return t.holds("race", partsOf(mark(won)))
}

// abandons: an upload that is given up leaves nothing, and can be given up again.
func (t *trial) abandons(s object.Parted) error {
	id, err := s.BeginUpload(t.ctx, t.folder+"given-up")
	if err != nil {
		return fmt.Errorf("begin an upload: %w", err)
	}
	if _, err := s.PutPart(t.ctx, t.folder+"given-up", id, 1, bytes.NewReader([]byte("part"))); err != nil {
		return fmt.Errorf("put part: %w", err)
	}
	for range 2 {
		if err := s.AbortUpload(t.ctx, t.folder+"given-up", id); err != nil {
			return fmt.Errorf("give up an upload: %w", err)
		}
	}
	return t.missing("given-up")
}
