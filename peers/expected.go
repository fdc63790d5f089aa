package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// expectation is a line of expected.tsv: a test that a suite is known not to pass, and the part that will have it pass. In test
// "*" stands for any run of characters. Where the test itself goes now this way and now that, in the place of the part stands
// unstable and why; such a test has to pass once in a few runs.
type expectation struct {
	suite, test, part string
	line              int
	used              bool
}

const (
	unstable  = "unstable: "
	sometimes = ", sometimes: "
)

// goesBothWays tells whether the test may as well pass.
func (e *expectation) goesBothWays() bool {
	return strings.HasPrefix(e.part, unstable) || strings.Contains(e.part, sometimes)
}

// parseExpected reads rows of suite, test and part.
func parseExpected(text string) ([]*expectation, error) {
	var list []*expectation
	err := rows(text, []string{"suite", "test", "part"}, func(line int, f []string) {
		list = append(list, &expectation{suite: f[0], test: f[1], part: f[2], line: line})
	})
	return list, err
}

// outcome is what a suite came to.
type outcome struct {
	results map[string]string // PASS, FAIL or SKIP, by test
	worse   []string          // tests that fail, are skipped or are missing here and passed on Apache Kafka
}

// worseLine is what a rig prints of a test that did better on Apache Kafka.
var worseLine = regexp.MustCompile(`(?m)^(?:FAILS HERE, not on the reference|passed on the reference, (?:did not run|skipped) here): (\S+)`)

// parseOutcome reads what a rig printed, and its file of test, result and seconds.
func parseOutcome(report, file string) (outcome, error) {
	o := outcome{results: map[string]string{}}
	if _, found := closingLine(report); !found {
		return o, errors.New("the report has no closing line")
	}
	rows, err := os.ReadFile(file)
	if err != nil {
		return o, err
	}
	for _, m := range worseLine.FindAllStringSubmatch(report, -1) {
		o.worse = append(o.worse, m[1])
	}
	for line := range strings.Lines(string(rows)) {
		if fields := strings.Split(line, "\t"); len(fields) >= 2 {
			o.results[fields[0]] = fields[1]
		}
	}
	return o, nil
}

// goPass is how a Go test says that it has passed.
var goPass = regexp.MustCompile(`^ *--- PASS: (\S+) \(`)

// passLate takes in tests that have passed though the rig takes them for failed. What test2json writes (file; not every suite has it)
// tells of a test's end only with the next one's: where a run is cut, the last end is found in the text alone.
func (o *outcome) passLate(file string) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		var event struct{ Output string }
		if json.Unmarshal([]byte(line), &event) != nil {
			continue // what the tests' program says when it dies
		}
		m := goPass.FindStringSubmatch(event.Output)
		if m == nil || o.results[m[1]] != "FAIL" {
			continue
		}
		o.results[m[1]] = "PASS"
		o.worse = slices.DeleteFunc(o.worse, func(test string) bool { return test == m[1] })
	}
	return nil
}

// judgeSuite prints what the list does not explain, and what it lists in vain: tests that pass and, with whole, entries that no
// test needs. Both count as failed.
func judgeSuite(out io.Writer, suite string, o outcome, list []*expectation, whole bool) tally {
	list = slices.DeleteFunc(slices.Clone(list), func(e *expectation) bool { return e.suite != suite })
	var count tally
	expected := 0
	for _, test := range o.worse {
		covered := false
		for _, e := range list {
			if matches(e.test, test) {
				e.used, covered = true, true
			}
		}
		if covered {
			expected++
			continue
		}
		count.failed++
		fmt.Fprintf(out, "NEW  %s: %s\n", suite, test)
	}
	passes := slices.Sorted(maps.Keys(o.results))
	passes = slices.DeleteFunc(passes, func(test string) bool { return o.results[test] != "PASS" })
	count.passed = len(passes)
	for _, e := range list {
		if e.goesBothWays() {
			continue
		}
		for _, test := range passes {
			if matches(e.test, test) {
				e.used = true
				count.failed++
				fmt.Fprintf(out, "OLD  line %d of the list: %s passes %s (%s)\n", e.line, suite, test, e.part)
			}
		}
		if whole && !e.used {
			count.failed++
			fmt.Fprintf(out, "OLD  line %d of the list is not needed any more: %s, %s (%s)\n", e.line, suite, e.test, e.part)
		}
	}
	fmt.Fprintf(out, "%s: %d passed, %d worse than Apache Kafka as expected, %d not expected\n", suite, count.passed, expected, len(o.worse)-expected)
	return count
}

// stillUnsteady returns the tests that are listed as unstable and have not passed yet: of those that failed in the first run,
// or of before in a later one.
func stillUnsteady(before []string, first bool, o outcome, suite string, list []*expectation) []string {
	return slices.DeleteFunc(slices.Clone(o.worse), func(test string) bool {
		listed := slices.ContainsFunc(list, func(e *expectation) bool {
			return e.suite == suite && strings.HasPrefix(e.part, unstable) && matches(e.test, test)
		})
		return !listed || !first && !slices.Contains(before, test)
	})
}
