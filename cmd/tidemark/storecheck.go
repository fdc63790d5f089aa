package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-io/tidemark/tier/object/storecheck"
	"github.com/tidemark-io/tidemark/tier/object/storeurl"
)

func storeCheckCommand(a *app) *cobra.Command {
	var limit time.Duration
	c := &cobra.Command{
		Use:   "store-check URL",
		Short: "Try whether an object store keeps the promises that Tidemark's safety rests on",
		Long: "Try whether an object store keeps the promises that Tidemark's safety rests on: conditional writes above all.\n\n" +
			"It works in a folder of its own inside the store, which it removes again. Run it before the first broker.",
		Example: "  tidemark store-check file:///var/lib/tidemark/store\n" +
			"  AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=... tidemark store-check minio://127.0.0.1:9000/bucket/prefix\n" +
			"  tidemark store-check 's3://bucket/prefix?region=eu-central-1'",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), limit)
			defer cancel()
			store, err := storeurl.Create(ctx, args[0])
			if err != nil {
				return unusable{err}
			}
			result := storeCheckResult{URL: args[0]}
			err = storecheck.Full(ctx, store, "store-check-"+rand.Text(), sideBySide, func(r storecheck.Result) {
				result.Checks = append(result.Checks, newCheckRow(r))
			})
			result.Passed = err == nil
			result.Undecided = err != nil && !errors.Is(err, storecheck.ErrFailed)
			if err := a.print(cmd, result); err != nil {
				return err
			}
			if err != nil {
				return errReported
			}
			return nil
		},
	}
	c.Flags().DurationVar(&limit, "limit", 5*time.Minute, "give up after this time")
	return c
}

// sideBySide runs the tasks at once.
func sideBySide(n int, task func(int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { task(i) })
	}
	group.Wait()
}

// storeCheckResult is the view of store-check.
type storeCheckResult struct {
	URL    string     `json:"url"`
	Passed bool       `json:"passed"`
	Checks []checkRow `json:"checks"`

	// Undecided: it does not answer, or refuses us, and no check says more.
	Undecided bool `json:"undecided,omitempty"`
}

type checkRow struct {
	Name  string `json:"name"`
	Error string `json:"error,omitempty"`
}

func newCheckRow(r storecheck.Result) checkRow {
	row := checkRow{Name: r.Name}
	if r.Err != nil {
		row.Error = r.Err.Error()
	}
	return row
}

func (r storeCheckResult) write(p *page) {
	p.heading()
	for _, c := range r.Checks {
		if c.Error == "" {
			p.row(c.Name, "ok")
		} else {
			p.row(c.Name, "FAILED: "+c.Error)
		}
	}
	p.flush()
	verdict := "must not be used for a cluster"
	switch {
	case r.Passed:
		verdict = "can hold a cluster"
	case r.Undecided:
		verdict = "could not be checked"
	}
	fmt.Fprintf(p.out, "\n%s %s.\n", r.URL, verdict)
}
