package main

import (
	"strings"
	"testing"
)

const report = `OK   produce/acks
DIFF fetch/simple
     02 Fetch v4, Topics[0].Partitions[1].HighWatermark: ref=3 dut=4
     02 Fetch v5, Topics[2].Partitions[0].HighWatermark: ref=3 dut=4
DIFF fetch/late
     [JoinGroup v4] 03 Fetch v5: ref={"a":1} dut=(step missing)
SKIP transactions/commit
     EndTxn is not announced
FAIL groups/join
     read: connection reset
4 scenarios in 1.0 s
PASS 1 FAIL 3 SKIP 1
`

const allowed = "# scenario\tstep\tfield\treason\n" +
	"fetch/simple\t*\tTopics.Partitions.HighWatermark\tissue 7\n" +
	"fetch/late\t[JoinGroup v*] 03 Fetch v5\t\twe are late\n" +
	"transactions/*\t-\tSKIP\tissue 8\n" +
	"groups/join\t-\tFAIL\tissue 9\n"

func verdict(t *testing.T, report, list string, whole bool) (bool, string) {
	t.Helper()
	known, err := parseAllowList(list)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	count := judge(&out, report, known, whole)
	return count.failed == 0, out.String()
}

func TestKnownDifferencesPass(t *testing.T) {
	if ok, out := verdict(t, report, allowed, true); !ok || !strings.Contains(out, "1 scenarios equal, 5 differences known, 0 new") {
		t.Error(out)
	}
}

func TestEveryLineOfTheListIsNeeded(t *testing.T) {
	lines := strings.SplitAfter(allowed, "\n")
	for i := 1; i < len(lines)-1; i++ {
		without := strings.Join(lines[:i], "") + strings.Join(lines[i+1:], "")
		if ok, out := verdict(t, report, without, true); ok || !strings.Contains(out, "NEW ") {
			t.Errorf("without %q: %s", lines[i], out)
		}
	}
}

func TestUnusedEntriesFailWholeRuns(t *testing.T) {
	more := allowed + "produce/acks\t*\t*\twas repaired\n"
	if ok, out := verdict(t, report, more, true); ok || !strings.Contains(out, "OLD  line 6") {
		t.Error(out)
	}
	if ok, out := verdict(t, report, more, false); !ok {
		t.Errorf("part of the scenarios: %s", out)
	}
}

func TestAWildFieldDoesNotExcuseASkip(t *testing.T) {
	list := strings.Replace(allowed, "transactions/*\t-\tSKIP", "transactions/*\t*\t*", 1)
	if ok, out := verdict(t, report, list, false); ok {
		t.Error(out)
	}
}

func TestABrokenReportFails(t *testing.T) {
	if ok, out := verdict(t, strings.Replace(report, "PASS 1", "", 1), allowed, true); ok {
		t.Error(out)
	}
}

func TestEntriesNeedAReason(t *testing.T) {
	for _, line := range []string{"a\tb\tc", "a\tb\tc\t ", "a b c d"} {
		if _, err := parseAllowList(line); err == nil {
			t.Errorf("%q was taken", line)
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true},
		{"", "a", false},
		{"a", "a", true},
		{"*", "", true},
		{"*", "a/b", true},
		{"a*", "a", true},
		{"a*c", "abc", true},
		{"a*c", "abcd", false},
		{"*b*", "abc", true},
		{"a*b*c", "a-b-c-", false},
		{"a*b*c", "a-b-bc", true},
	} {
		if got := matches(c.pattern, c.text); got != c.want {
			t.Errorf("%q, %q: %v", c.pattern, c.text, got)
		}
	}
}
