// Command peers starts brokers, lets the project's rigs (a folder of its own beside this repository) loose on them, and judges
// what they report against the lists in this folder.
//
// differ compares the answers to some 245 scripted scenarios with those recorded from Apache Kafka. Each difference that is
// known stands in differ-allow.tsv with the reason for it, or the issue that removes it.
//
// The suites are other clients' own tests, each run on a broker of its own. Each test that does worse than on Apache Kafka
// stands in expected.tsv with the part that will have it pass.
//
// What is not listed fails, and so does what is listed in vain.
//
//	go run ./peers -rigs ../shared/rigs -broker bin/tidemark
//	go run ./peers -suites all             all suites; quick is the default
//	go run ./peers -suites kcat,sarama     these suites alone; none leaves all of them out
//	go run ./peers -only produce/          a few scenarios of differ, and no suite
//	go run ./peers -judge report.txt       judge what differ printed before
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

// tally counts scenarios and tests. Failed are those that the lists don't explain, and entries of the lists that are in vain.
type tally struct{ passed, failed int }

type options struct {
	rigs, binary             string
	only, allow, report      string
	suites, expected, output string
}

func main() {
	var o options
	flag.StringVar(&o.rigs, "rigs", "../shared/rigs", "folder of the rigs")
	flag.StringVar(&o.binary, "broker", "bin/tidemark", "the broker's binary")
	flag.StringVar(&o.only, "only", "", "scenarios to run, as differ takes them, in place of all areas; unused entries of the list are then no failure")
	flag.StringVar(&o.allow, "allow", "peers/differ-allow.tsv", "known differences")
	flag.StringVar(&o.report, "judge", "", "judge this report of differ and start nothing")
	flag.StringVar(&o.suites, "suites", "quick", "suites to run: quick, all, none, or their names")
	flag.StringVar(&o.expected, "expected", "peers/expected.tsv", "tests that are expected to do worse than on Apache Kafka")
	flag.StringVar(&o.output, "output", "bin/peers", "folder for the suites' results and logs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	count, err := o.run(ctx)
	fmt.Fprintf(os.Stdout, "%d passed, %d failed\n", count.passed, count.failed)
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
	}
	if err != nil || count.failed > 0 {
		stop()
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context) (tally, error) {
	known, err := parseFile(o.allow, parseAllowList)
	if err != nil {
		return tally{}, err
	}
	expected, err := parseFile(o.expected, parseExpected)
	if err != nil {
		return tally{}, err
	}
	if o.report != "" || o.only != "" {
		o.suites = "none"
	}
	chosen, err := pick(o.suites)
	if err != nil {
		return tally{}, err
	}
	var count tally
	if o.suites == "quick" || o.suites == "all" || o.suites == "none" {
		count, err = o.differ(ctx, known)
	}
	for _, s := range chosen {
		more, suiteErr := s.run(ctx, o.rigs, o.binary, o.output, expected)
		count.passed += more.passed
		count.failed += more.failed
		err = errors.Join(err, suiteErr)
	}
	return count, err
}

// differ judges a report of the rig: one that is there, or that of a run.
func (o options) differ(ctx context.Context, known []*entry) (tally, error) {
	if o.report == "" {
		printed, err := differ(ctx, o.rigs, o.binary, o.only)
		if err != nil {
			return tally{}, err
		}
		return judge(os.Stdout, printed, known, o.only == ""), nil
	}
	printed, err := os.ReadFile(o.report)
	if err != nil {
		return tally{}, err
	}
	return judge(os.Stdout, string(printed), known, o.only == ""), nil
}

func parseFile[T any](name string, parse func(string) ([]T, error)) ([]T, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	list, err := parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return list, nil
}
