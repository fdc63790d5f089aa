package storecheck

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/tier/object"
)

var checks = []check{
	{"create-twice", true, createTwice},
	{"wrong-token", true, wrongToken},
	{"missing-key", true, missingKey},
	{"create-race", false, createRace},
	{"swap-race", false, swapRace},
	{"lost-update", false, lostUpdate},
	{"same-bytes", false, sameBytes},
	{"overwrite", false, overwrite},
	{"delete", false, deletes},
	{"ranges", false, ranges},
	{"list", false, list},
	{"list-pages", false, listPages},
	{"keys", false, keys},
	{"large", false, large},
	{"parts", false, parts},
}

func createTwice(t *trial) error {
	if _, err := t.putOK("k", "first", object.IfAbsent()); err != nil {
		return err
	}
	_, err := t.put("k", "second", object.IfAbsent())
	if err := refused("a second create", err, object.ErrPrecondition); err != nil {
		return err
	}
	return t.holds("k", "first")
}

func wrongToken(t *trial) error {
	// A token of the store's own form that stands for other bytes.
	wrong, err := t.putOK("other", "other bytes", object.Condition{})
	if err != nil {
		return err
	}
	first, err := t.putOK("k", "first", object.IfAbsent())
	if err != nil {
		return err
	}
	_, err = t.put("k", "wrong", object.IfMatch(wrong))
	if err := refused("a put with a wrong token", err, object.ErrPrecondition); err != nil {
		return err
	}
	second, err := t.putOK("k", "second", object.IfMatch(first))
	if err != nil {
		return fmt.Errorf("with the right token: %w", err)
	}
	_, err = t.put("k", "third", object.IfMatch(first))
	if err := refused("a put with an old token", err, object.ErrPrecondition); err != nil {
		return err
	}
	if err := t.holds("k", "second"); err != nil {
		return err
	}
	// The token of a get must serve as well as that of a put.
	_, read, err := object.Read(t.ctx, t.store, t.folder+"k", 1<<20)
	if err != nil {
		return err
	}
	if read != second {
		return fmt.Errorf("the token of a get, %q, is not that of its put, %q", read, second)
	}
	return nil
}

func missingKey(t *trial) error {
	token, err := t.putOK("gone", "body", object.IfAbsent())
	if err != nil {
		return err
	}
	if err := t.store.Delete(t.ctx, t.folder+"gone"); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	for _, key := range []string{"gone", "never"} {
		_, err := t.put(key, "body", object.IfMatch(token))
		if err := refused("If-Match on a missing key", err, object.ErrNotExist, object.ErrPrecondition); err != nil {
			return err
		}
		if err := t.missing(key); err != nil {
			return err
		}
	}
	return nil
}

// racers is how many requests compete in the race checks, rounds how often.
const (
	racers = 16
	rounds = 8
)

// winner runs a race of conditional puts and returns the only body that won.
func (t *trial) winner(key string, round int, cond object.Condition) (string, object.Token, error) {
	tokens, errs := make([]object.Token, racers), make([]error, racers)
	body := func(i int) string { return fmt.Sprintf("round %d racer %d", round, i) }
	t.run(racers, func(i int) { tokens[i], errs[i] = t.put(key, body(i), cond) })
	won := -1
	for i, err := range errs {
		switch {
		case err == nil && won >= 0:
			return "", "", fmt.Errorf("round %d: racers %d and %d both won", round, won, i)
		case err == nil:
			won = i
		case !errors.Is(err, object.ErrPrecondition) && !errors.Is(err, object.ErrUnavailable):
			return "", "", fmt.Errorf("round %d racer %d: %w", round, i, err)
		}
	}
	if won < 0 {
		return "", "", fmt.Errorf("round %d: nobody won: %w", round, errors.Join(errs...))
	}
	return body(won), tokens[won], t.holds(key, body(won))
}

func createRace(t *trial) error {
	for round := range rounds {
		if _, _, err := t.winner("k"+strconv.Itoa(round), round, object.IfAbsent()); err != nil {
			return err
		}
	}
	return nil
}

func swapRace(t *trial) error {
	token, err := t.putOK("k", "start", object.IfAbsent())
	if err != nil {
		return err
	}
	for round := range rounds {
		if _, token, err = t.winner("k", round, object.IfMatch(token)); err != nil {
			return err
		}
	}
	return nil
}

// lostUpdate lets all racers add their tags to one object under If-Match: each must be there once in the end.
func lostUpdate(t *trial) error {
	const steps = 4
	if _, err := t.putOK("k", "start\n", object.IfAbsent()); err != nil {
		return err
	}
	errs := make([]error, racers)
	t.run(racers, func(i int) {
		for step := range steps {
			if errs[i] = t.add(fmt.Sprintf("racer %d step %d\n", i, step)); errs[i] != nil {
				return
			}
		}
	})
	if err := cmp.Or(errs...); err != nil {
		return err
	}
	b, _, err := object.Read(t.ctx, t.store, t.folder+"k", 1<<20)
	if err != nil {
		return err
	}
	for i := range racers * steps {
		tag := fmt.Sprintf("racer %d step %d\n", i/steps, i%steps)
		if n := strings.Count(string(b), tag); n != 1 {
			return fmt.Errorf("an update is there %d times: conditional puts overtook each other", n)
		}
	}
	return nil
}

// add appends tag to the object. A put whose answer decides nothing is looked for at the next try.
func (t *trial) add(tag string) error {
	var last error
	for range 100 * racers {
		b, token, err := object.Read(t.ctx, t.store, t.folder+"k", 1<<20)
		if err != nil {
			return err
		}
		if strings.Contains(string(b), tag) {
			return nil
		}
		if _, last = t.put("k", string(b)+tag, object.IfMatch(token)); last == nil {
			return nil
		}
		if !errors.Is(last, object.ErrPrecondition) && !errors.Is(last, object.ErrUnavailable) {
			return last
		}
	}
	return fmt.Errorf("an update did not get through: %w", last)
}

// sameBytes writes old bytes again. Whether that brings the old token back is the store's affair; a put under the token
// that is valid now must succeed all the same.
func sameBytes(t *trial) error {
	first, err := t.putOK("k", "a", object.IfAbsent())
	if err != nil {
		return err
	}
	second, err := t.putOK("k", "b", object.IfMatch(first))
	if err != nil {
		return err
	}
	if first == second {
		return errors.New("different bytes have the same token")
	}
	again, err := t.putOK("k", "a", object.IfMatch(second))
	if err != nil {
		return err
	}
	if _, err := t.putOK("k", "c", object.IfMatch(again)); err != nil {
		return err
	}
	return t.holds("k", "c")
}

func overwrite(t *trial) error {
	for i := range 20 {
		body := strings.Repeat("x", i*37)
		if _, err := t.putOK("k", body, object.Condition{}); err != nil {
			return err
		}
		if err := t.holds("k", body); err != nil {
			return err
		}
		info, err := t.store.Head(t.ctx, t.folder+"k")
		if err != nil {
			return fmt.Errorf("head: %w", err)
		}
		if info.Size != int64(len(body)) || info.Key != t.folder+"k" {
			return fmt.Errorf("head tells %d bytes of %q, %d are written", info.Size, info.Key, len(body))
		}
	}
	return nil
}

func deletes(t *trial) error {
	remove := func(key string) error {
		if err := t.store.Delete(t.ctx, t.folder+key); err != nil {
			return fmt.Errorf("delete %s: %w", key, err)
		}
		return nil
	}
	if err := remove("never"); err != nil {
		return err
	}
	for range 10 {
		err := firstError(
			func() error { _, err := t.putOK("k", "body", object.IfAbsent()); return err },
			func() error { return t.lists("", "", "k") },
			func() error { return remove("k") },
			func() error { return t.missing("k") },
			func() error { return t.lists("", "") },
			func() error { return remove("k") },
		)
		if err != nil {
			return err
		}
	}
	return nil
}

func ranges(t *trial) error {
	const body = "0123456789"
	if _, err := t.putOK("k", body, object.IfAbsent()); err != nil {
		return err
	}
	if _, err := t.putOK("empty", "", object.IfAbsent()); err != nil {
		return err
	}
	if err := t.holds("empty", ""); err != nil {
		return err
	}
	for _, c := range []struct {
		r    object.Range
		want string
	}{
		{object.Range{}, body},
		{object.Range{Length: 1}, "0"},
		{object.Range{Length: 10}, body},
		{object.Range{Length: 11}, body},
		{object.Range{Offset: 3, Length: 4}, "3456"},
		{object.Range{Offset: 3}, "3456789"},
		{object.Range{Offset: 9, Length: 1}, "9"},
		{object.Range{Offset: 9, Length: 1000}, "9"},
	} {
		o, err := t.store.Get(t.ctx, t.folder+"k", c.r)
		if err != nil {
			return fmt.Errorf("range %+v: %w", c.r, err)
		}
		got, err := io.ReadAll(o.Body)
		o.Body.Close()
		if err != nil {
			return fmt.Errorf("read range %+v: %w", c.r, err)
		}
		if string(got) != c.want {
			return fmt.Errorf("range %+v is %q, not %q", c.r, got, c.want)
		}
		if o.Size != int64(len(body)) {
			return fmt.Errorf("range %+v tells a size of %d, the whole object has %d", c.r, o.Size, len(body))
		}
	}
	for _, r := range []object.Range{{Offset: 10}, {Offset: 10, Length: 1}, {Offset: 1000, Length: 5}} {
		if err := t.getRefused("k", r, object.ErrRange); err != nil {
			return err
		}
	}
	return nil
}

func list(t *trial) error {
	// In this order, though the parts alone would sort otherwise: "-" and "." come before "/".
	sorted := []string{"a-1", "a.b", "a/1", "a/2", "a/2.x", "a/b/c", "a0", "b", "boundary/1"}
	for i := range sorted {
		key := sorted[(i*5)%len(sorted)]
		if _, err := t.putOK(key, key, object.IfAbsent()); err != nil {
			return err
		}
	}
	return firstError(
		func() error { return t.lists("", "", sorted...) },
		func() error { return t.lists("a/", "", "a/1", "a/2", "a/2.x", "a/b/c") },
		func() error { return t.lists("a/2", "", "a/2", "a/2.x") },
		func() error { return t.lists("a", "a.b", "a/1", "a/2", "a/2.x", "a/b/c", "a0") },
		func() error { return t.lists("", "a/2.y", "a/b/c", "a0", "b", "boundary/1") },
		func() error { return t.lists("a/", "a0") },
		func() error { return t.lists("b", "a", "b", "boundary/1") },
		func() error { return t.lists("c", "") },
		func() error { return t.lists("", "boundary/1") },
	)
}

// listPages lists more keys than a page of S3 holds.
func listPages(t *trial) error {
	const count = 1005
	want := make([]string, count)
	for i := range want {
		want[i] = fmt.Sprintf("%020d", i)
	}
	errs := make([]error, racers)
	t.run(racers, func(racer int) {
		for i := racer; i < count && errs[racer] == nil; i += racers {
			_, errs[racer] = t.put(want[i], "x", object.IfAbsent())
		}
	})
	if err := cmp.Or(errs...); err != nil {
		return err
	}
	return firstError(
		func() error { return t.lists("", "", want...) },
		func() error { return t.lists("", want[0], want[1:]...) },
		func() error { return t.lists("", want[999], want[1000:]...) },
	)
}

// keys tries what Tidemark's own keys are made of; the longest part is as long as object.ValidKey allows.
func keys(t *trial) error {
	topic := strings.Repeat("long-topic.name_", 16)[:object.PartBytesMax-23] + "." + strings.Repeat("Z", 22)
	all := []string{
		"_under/score", "dots..in/name", "t/" + topic + "/0/00000000000000000000-0-n.log",
		"t/" + topic + "/10/x", "t/" + topic[:200] + "/0/x", "t/" + topic[:201] + "/0/x",
	}
	for _, key := range all {
		if _, err := t.putOK(key, key, object.IfAbsent()); err != nil {
			return fmt.Errorf("key %s: %w", key, err)
		}
	}
	for _, key := range all {
		if err := t.holds(key, key); err != nil {
			return fmt.Errorf("key %s: %w", key, err)
		}
	}
	return t.lists("t/", "", all[4], all[5], all[2], all[3])
}

// large writes an object above the size where clients begin to send several parts.
func large(t *trial) error {
	body := strings.Repeat("0123456789abcdef", 9<<20/16)
	if _, err := t.putOK("k", body, object.IfAbsent()); err != nil {
		return err
	}
	if err := t.holds("k", body); err != nil {
		return err
	}
	// A server may refuse before it has read all, and the client then finds the connection broken rather than the answer.
	_, err := t.put("k", body+"!", object.IfAbsent())
	if err := refused("a second create of a large object", err, object.ErrPrecondition, object.ErrUnavailable); err != nil {
		return err
	}
	return t.holds("k", body)
}
