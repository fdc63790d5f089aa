// Package storecheck tries an object store: does it keep the promises that Tidemark's safety rests on? Some stores accept
// conditional requests and ignore their conditions, which is a split brain that nobody sees.
//
// Quick is what a broker runs before it trusts a store, Full what `tidemark store-check` runs, and what the tests of every
// implementation run. All work is done in keys under a scratch prefix, which are deleted again.
package storecheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/tier/object"
)

// Runner runs task(0) to task(n-1) side by side and returns when all of them have.
type Runner func(n int, task func(i int))

// Result is the outcome of one check; Err says what the store did wrong.
type Result struct {
	Name string
	Err  error
}

// ErrFailed is what Quick and Full return for a store that fails a check. A store that does not answer, checkTries times, has not
// failed: errors.Is(err, object.ErrUnavailable) asks for another try, in another scratch folder. Nor has one that refuses us,
// object.ErrDenied.
var ErrFailed = errors.New("the object store does not keep its promises")

// Quick runs the few checks without which a store must not be used: create twice, a wrong token, If-Match on a missing key.
// scratch is a folder of its own (no slash at the end), different for each call. The start of a broker waits for it: run puts the
// checks side by side; nil runs them one after the other.
func Quick(ctx context.Context, s object.Store, scratch string, run Runner) error {
	quick := slices.DeleteFunc(slices.Clone(checks), func(c check) bool { return !c.quick })
	errs := make([]error, len(quick))
	task := func(i int) { errs[i] = quick[i].try(ctx, s, scratch, nil) }
	if run != nil {
		run(len(quick), task)
	} else {
		for i := range quick {
			task(i)
		}
	}
	for i, err := range errs {
		if err != nil {
			return verdict(quick[i].name, err)
		}
	}
	return nil
}

func verdict(check string, err error) error {
	if errors.Is(err, object.ErrUnavailable) || errors.Is(err, object.ErrDenied) {
		return fmt.Errorf("check the object store: %s: %w", check, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrFailed, check, err)
}

// Full runs every check, and goes on after a failed one, but not where the store refuses us. report, which may be nil, is called
// after each.
func Full(ctx context.Context, s object.Store, scratch string, run Runner, report func(Result)) error {
	var failed error
	for _, c := range checks {
		err := c.try(ctx, s, scratch, run)
		if err != nil {
			failed = errors.Join(failed, verdict(c.name, err))
		}
		if report != nil {
			report(Result{Name: c.name, Err: err})
		}
		if errors.Is(err, object.ErrDenied) {
			break
		}
	}
	return failed
}

// check is one promise.
type check struct {
	name  string
	quick bool
	run   func(t *trial) error
}

// checkTries bounds how often a check is run that a store leaves without a verdict.
const checkTries = 3

// try runs the check. One that met an answer which decides nothing, such as a 409 or one that was lost, begins anew in another
// folder: what became of the request does not matter there.
func (c check) try(ctx context.Context, s object.Store, scratch string, run Runner) error {
	var err error
	for n := range checkTries {
		t := &trial{ctx: ctx, store: s, folder: fmt.Sprintf("%s/%s/%d/", scratch, c.name, n), run: run}
		err = c.run(t)
		t.clean()
		if !errors.Is(err, object.ErrUnavailable) || ctx.Err() != nil {
			break
		}
	}
	return err
}

// trial is what a check works with: short names for what it does all the time.
type trial struct {
	ctx    context.Context
	store  object.Store
	folder string
	run    Runner
}

func (t *trial) clean() {
	for info, err := range t.store.List(t.ctx, t.folder, "") {
		if err != nil {
			return // what stays is rubbish in a scratch folder; the check has its own verdict
		}
		_ = t.store.Delete(t.ctx, info.Key)
	}
}

func (t *trial) put(key, body string, cond object.Condition) (object.Token, error) {
	return t.store.Put(t.ctx, t.folder+key, bytes.NewReader([]byte(body)), cond)
}

// putOK is a put that has to succeed.
func (t *trial) putOK(key, body string, cond object.Condition) (object.Token, error) {
	token, err := t.put(key, body, cond)
	if err != nil {
		return "", fmt.Errorf("a put that must succeed: %w", err)
	}
	if token == "" {
		return "", errors.New("a put brings no token")
	}
	return token, nil
}

// refused tells what is wrong with the answer to a request that must not succeed.
func refused(what string, err error, accepted ...error) error {
	if err == nil {
		return fmt.Errorf("%s succeeds", what)
	}
	for _, a := range accepted {
		if errors.Is(err, a) {
			return nil
		}
	}
	return fmt.Errorf("%s: answered by %w", what, err)
}

// holds tells whether key has that body.
func (t *trial) holds(key, want string) error {
	b, token, err := object.Read(t.ctx, t.store, t.folder+key, int64(len(want))+1<<20)
	switch {
	case err != nil:
		return fmt.Errorf("read after write: %w", err)
	case string(b) != want:
		return fmt.Errorf("read after write: %d bytes that are not the %d written last", len(b), len(want))
	case token == "":
		return errors.New("a get of the whole object brings no token")
	}
	return nil
}

// missing tells whether there is no object of that key.
func (t *trial) missing(key string) error {
	_, err := t.store.Head(t.ctx, t.folder+key)
	if err := refused("head of a missing key", err, object.ErrNotExist); err != nil {
		return err
	}
	return t.getRefused(key, object.Range{}, object.ErrNotExist)
}

func (t *trial) getRefused(key string, r object.Range, accepted error) error {
	o, err := t.store.Get(t.ctx, t.folder+key, r)
	if err == nil {
		o.Body.Close()
	}
	return refused(fmt.Sprintf("get of %s, range %+v,", key, r), err, accepted)
}

// lists tells whether the list under prefix behind after is exactly want.
func (t *trial) lists(prefix, after string, want ...string) error {
	if after != "" {
		after = t.folder + after
	}
	var got []string
	for info, err := range t.store.List(t.ctx, t.folder+prefix, after) {
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		got = append(got, info.Key[len(t.folder):])
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("list of %q after %q is %q, not %q", prefix, after, got, want)
	}
	return nil
}

func firstError(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
