// Command mutants breaks the code on purpose, one small change at a time, and runs the tests that have to notice. A mutant that
// they let pass is a promise without a test.
//
//	go run ./cmd/mutants           all of mutants.txt
//	go run ./cmd/mutants sim 07    those whose names begin so
//
// The files stay as they are: go test takes the changed one from a temporary folder.
package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

//go:embed mutants.txt
var list string

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	missed, err := run(ctx, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
	}
	if err != nil || missed > 0 {
		stop()
		os.Exit(1)
	}
}

// run tries the mutants whose names begin with one of the words, or all, and tells how many were missed.
func run(ctx context.Context, words []string) (missed int, err error) {
	mutants, err := parse(list)
	if err != nil {
		return 0, err
	}
	for _, m := range mutants {
		if len(words) > 0 && !slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(m.name, w) }) {
			continue
		}
		begin := time.Now()
		verdict, err := m.try(ctx)
		if err != nil {
			return missed, fmt.Errorf("%s: %w", m.name, err)
		}
		if verdict == "" {
			verdict = "MISSED"
			missed++
		}
		fmt.Printf("%-66s %5.1f s  %s\n", m.name, time.Since(begin).Seconds(), verdict)
	}
	return missed, nil
}

// try runs the mutant's tests with its change in place. It tells who has noticed, nothing if nobody has.
func (m mutant) try(ctx context.Context) (string, error) {
	file, changed, err := m.apply(".")
	if err != nil {
		return "", err
	}
	folder, err := os.MkdirTemp("", "tidemark-mutant-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	if file, err = filepath.Abs(file); err != nil {
		return "", err
	}
	replacement, overlay := filepath.Join(folder, filepath.Base(file)), filepath.Join(folder, "overlay.json")
	content, err := json.Marshal(map[string]map[string]string{"Replace": {file: replacement}})
	err = errors.Join(err, os.WriteFile(replacement, []byte(changed), 0o600), os.WriteFile(overlay, content, 0o600))
	if err != nil {
		return "", err
	}
	test := exec.CommandContext(ctx, "go", slices.Concat([]string{"test", "-vet=off", "-count=1", "-failfast", "-overlay", overlay}, m.test)...)
	out, err := test.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case bytes.Contains(out, []byte("no tests to run")):
		return "", errors.New("there is no such test")
	case bytes.Contains(out, []byte("[build failed]")), bytes.Contains(out, []byte("[setup failed]")), err != nil && !errors.As(err, &exit):
		return "", fmt.Errorf("go test: %w\n%s", err, out)
	case err == nil:
		return "", nil
	}
	return failure(string(out)), nil
}

// seedFailure is how the simulator says what a seed has found.
var seedFailure = regexp.MustCompile(`(?m)^\s*seed (\d+): (.*)$`)

// failure is what a test run says of what failed: the simulator's lowest seed, or the first test.
func failure(out string) string {
	seeds := seedFailure.FindAllStringSubmatch(out, -1)
	if len(seeds) > 0 {
		first := slices.MinFunc(seeds, func(a, b []string) int {
			return cmp.Or(cmp.Compare(len(a[1]), len(b[1])), strings.Compare(a[1], b[1]))
		})
		return fmt.Sprintf("%d seeds, the first is %s: %s", len(seeds), first[1], first[2])
	}
	for _, prefix := range []string{"panic: ", "--- FAIL: "} {
		for line := range strings.Lines(out) {
			if what, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok {
				return what
			}
		}
	}
	return "fails"
}
