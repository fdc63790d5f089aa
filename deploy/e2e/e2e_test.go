// Package e2e runs Kafka's own command line tools, and kcat, on a broker.
//
// The files in testdata are transcripts: what the tools are asked to do, and what they print on Apache Kafka. A broker that
// makes them print something else fails. `make e2e` runs them on Tidemark; `make e2e-record` starts Apache Kafka and records
// its output anew. Without the flags that deploy/e2e/run gives, the tests that need Java are skipped.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	libs      = flag.String("libs", "", "folder of Kafka's jars; without it most tests are skipped")
	program   = flag.String("broker", "", "the broker's binary")
	reference = flag.Bool("reference", false, "test Apache Kafka in place of Tidemark; with -rewrite, record its output")
)

// kafkaTools run in one JVM for all tests, from the first that needs it. It ends with this process: with its standard input.
var kafkaTools = sync.OnceValues(func() (*tools, error) { return startTools(context.Background(), *libs) })

// steps of scenarios and checks of other tests
var passed, failed atomic.Int64

func TestMain(m *testing.M) {
	flag.Parse()
	status := m.Run()
	if *libs != "" {
		fmt.Fprintf(os.Stdout, "e2e: %d passed, %d failed\n", passed.Load(), failed.Load())
	}
	os.Exit(status)
}

func needTools(t *testing.T) {
	t.Helper()
	if *libs == "" {
		t.Skip("needs Kafka's tools: make e2e")
	}
}

// check counts what a test found out.
func check(t *testing.T, ok bool, format string, args ...any) {
	t.Helper()
	if ok {
		passed.Add(1)
		return
	}
	failed.Add(1)
	t.Errorf(format, args...)
}

func TestTools(t *testing.T) {
	needTools(t)
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			runScenario(t, file)
		})
	}
}
