package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const suiteReport = `sarama: installed in 4 s
FAILS HERE, not on the reference: TestTxn
FAILS HERE, not on the reference: TestTxn/v2 (3 brokers: something)
passed on the reference, did not run here: TestTxn/v3
passed on the reference, skipped here: TestNewGroup
fails here as on the reference: TestFlaw (environment: no docker)
sarama (full): 6 tests in 80 s; 2 new failures, 1 as on the reference, 0 without a verdict, 1 lost, 1 newly skipped
PASS 2 FAIL 3 SKIP 1
`

const suiteRows = "TestTxn\tFAIL\t0.1\nTestTxn/v2\tFAIL\t0.1\nTestNewGroup\tSKIP\t0.0\nTestFlaw\tFAIL\t1.0\nTestConsume\tPASS\t2.0\nTestProduce\tPASS\t1.0\n"

const suiteList = "# suite\ttest\tpart\n" +
	"sarama\tTestTxn*\ttransactions\n" +
	"sarama\tTestNewGroup\tnewer groups\n" +
	"kcat\tgroup\tof another suite\n"

func suiteVerdict(t *testing.T, report, list string, whole bool) (tally, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "results.tsv")
	if err := os.WriteFile(file, []byte(suiteRows), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := parseOutcome(report, file)
	if err != nil {
		t.Fatal(err)
	}
	expected, err := parseExpected(list)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	count := judgeSuite(&out, "sarama", o, expected, whole)
	return count, out.String()
}

func TestWhatIsExpectedToDoWorseIsNoFailure(t *testing.T) {
	count, out := suiteVerdict(t, suiteReport, suiteList, true)
	if count != (tally{passed: 2}) || !strings.Contains(out, "2 passed, 4 worse than Apache Kafka as expected, 0 not expected") {
		t.Errorf("%+v\n%s", count, out)
	}
}

func TestWhatIsNotExpectedFails(t *testing.T) {
	lines := strings.SplitAfter(suiteList, "\n")
	for i, failed := range map[int]int{1: 3, 2: 1, 3: 0} {
		without := strings.Replace(suiteList, lines[i], "", 1)
		if count, out := suiteVerdict(t, suiteReport, without, true); count.failed != failed || strings.Count(out, "NEW ") != failed {
			t.Errorf("without %q: %d failed\n%s", lines[i], count.failed, out)
		}
	}
}

func TestAnExpectedTestThatPassesFails(t *testing.T) {
	for _, test := range []string{"TestConsume", "TestCons*"} {
		for _, whole := range []bool{true, false} {
			count, out := suiteVerdict(t, suiteReport, suiteList+"sarama\t"+test+"\tquotas\n", whole)
			if count.failed != 1 || !strings.Contains(out, "OLD  line 5 of the list: sarama passes TestConsume (quotas)") {
				t.Errorf("%s, whole %v: %d failed\n%s", test, whole, count.failed, out)
			}
		}
	}
}

func TestAnEntryWithoutATestFailsInWholeRuns(t *testing.T) {
	for whole, failed := range map[bool]int{true: 1, false: 0} {
		if count, out := suiteVerdict(t, suiteReport, suiteList+"sarama\tTestGone\tquotas\n", whole); count.failed != failed {
			t.Errorf("whole %v: %d failed\n%s", whole, count.failed, out)
		}
	}
}

func TestAnUnstableTestIsNotJudgedByOneRun(t *testing.T) {
	list := suiteList + "sarama\tTestConsume\tunstable: a race in the test\nsarama\tTestProduce\tquotas, sometimes: a race\nsarama\tTestTxn\tunstable: too\n"
	if count, out := suiteVerdict(t, suiteReport, list, true); count.failed != 0 {
		t.Errorf("%d failed\n%s", count.failed, out)
	}
}

func TestAnUnstableTestHasToPassOnce(t *testing.T) {
	list, err := parseExpected("sarama\tTestTxn*\tunstable: a race\nsarama\tTestOther\tunstable: another\nsarama\tTestGone\tquotas, sometimes: late\n")
	if err != nil {
		t.Fatal(err)
	}
	unsteady := stillUnsteady(nil, true, outcome{worse: []string{"TestTxn", "TestTxn/v2", "TestGone"}}, "sarama", list)
	if want := []string{"TestTxn", "TestTxn/v2"}; !slices.Equal(unsteady, want) {
		t.Fatalf("after the first run %q, want %q", unsteady, want)
	}
	unsteady = stillUnsteady(unsteady, false, outcome{worse: []string{"TestTxn/v2", "TestOther"}}, "sarama", list)
	if want := []string{"TestTxn/v2"}; !slices.Equal(unsteady, want) {
		t.Errorf("after the second run %q, want %q: what passed before need not pass again", unsteady, want)
	}
}

// The run was cut while one test hung. What the one before it came to is in the text, and no event says so.
func TestTheLastTestBeforeACutCounts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.json")
	stream := `{"Action":"output","Test":"TestTxn","Output":"--- PASS: TestTxn (0.10s)\n"}
{"Action":"output","Test":"TestTxn","Output":"    --- PASS: TestTxn/v2 (0.10s)\n"}
panic: test timed out after 3m0s
{"Action":"output","Test":"TestFlaw","Output":"--- FAIL: TestFlaw (0.10s)\n"}
{"Action":"output","Test":"TestNewGroup","Output":"--- PASS: TestNewGroup (0.10s)\n"}
`
	if err := os.WriteFile(file, []byte(stream), 0o600); err != nil {
		t.Fatal(err)
	}
	o := outcome{
		results: map[string]string{"TestTxn": "FAIL", "TestTxn/v2": "FAIL", "TestFlaw": "FAIL", "TestNewGroup": "SKIP"},
		worse:   []string{"TestTxn", "TestTxn/v2", "TestFlaw", "TestNewGroup"},
	}
	if err := o.passLate(file); err != nil {
		t.Fatal(err)
	}
	if want := []string{"TestFlaw", "TestNewGroup"}; !slices.Equal(o.worse, want) || o.results["TestTxn"] != "PASS" || o.results["TestNewGroup"] != "SKIP" {
		t.Errorf("worse %q, want %q; results %v", o.worse, want, o.results)
	}
	if err := o.passLate(file + "-of-another-suite"); err != nil {
		t.Error(err)
	}
}

func TestASuiteThatBrokeOffHasNoOutcome(t *testing.T) {
	if _, err := parseOutcome(strings.Replace(suiteReport, "PASS 2", "", 1), os.DevNull); err == nil {
		t.Error("no error for a report without its last line")
	}
	if _, err := parseOutcome(suiteReport, filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("no error for missing results")
	}
}

func TestExpectationsNameAPart(t *testing.T) {
	for _, line := range []string{"kcat\tgroup", "kcat\tgroup\t ", "kcat group part"} {
		if _, err := parseExpected(line); err == nil {
			t.Errorf("%q was taken", line)
		}
	}
}

// The lists of this folder can be read, and name suites that there are.
func TestTheListsAreWhole(t *testing.T) {
	if _, err := parseFile("differ-allow.tsv", parseAllowList); err != nil {
		t.Error(err)
	}
	list, err := parseFile("expected.tsv", parseExpected)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if chosen, err := pick(e.suite); err != nil || len(chosen) != 1 {
			t.Errorf("line %d: %q is no suite (%v)", e.line, e.suite, err)
		}
	}
}

func TestSuitesAreChosenByName(t *testing.T) {
	for names, want := range map[string]int{"none": 0, "all": len(suites), "kcat": 1, "kcat,sarama": 2} {
		if chosen, err := pick(names); err != nil || len(chosen) != want {
			t.Errorf("%s: %d suites (%v)", names, len(chosen), err)
		}
	}
	for _, names := range []string{"", "kact", "kcat,kact"} {
		if _, err := pick(names); err == nil {
			t.Errorf("%q was taken", names)
		}
	}
	chosen, err := pick("quick")
	if err != nil || len(chosen) == 0 || len(chosen) >= len(suites) {
		t.Errorf("quick: %d suites (%v)", len(chosen), err)
	}
}
