package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// What the list changes is still there: it grows old with every edit of the code.
func TestEveryMutantFitsTheCode(t *testing.T) {
	mutants, err := parse(list)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		if _, _, err := m.apply(root); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if m.before == m.after {
			t.Errorf("%s changes nothing", m.name)
		}
	}
}

// Each rule of the safety page that has code has a mutant, whose name begins with the rule's number.
func TestEveryRuleHasAMutant(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/safety.md"))
	if err != nil {
		t.Fatal(err)
	}
	rules := regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(string(page), -1)
	if len(rules) == 0 {
		t.Fatal("the page has no table of rules")
	}
	for _, rule := range rules {
		number := rule[1]
		if len(number) == 1 {
			number = "0" + number
		}
		if !strings.Contains(list, "\nmutant "+number+" ") {
			t.Errorf("rule %s has no mutant", number)
		}
	}
}

func TestAMutantChangesOnePlace(t *testing.T) {
	mutants, err := parse("# comment\nmutant 01 one\nin a\ntest ./a -run X\n-one\n-two\n+three\n\n\nmutant 02 two\nin b\ntest ./b\n-a\n")
	if err != nil || len(mutants) != 2 || len(mutants[0].test) != 3 {
		t.Fatalf("%+v, %v", mutants, err)
	}
	for _, c := range []struct{ source, other, want string }{
		{"one\ntwo\n", "", "three\n"},
		{"zero(one\ntwo)\nfour\n", "one\n", "zero(three)\nfour\n"},
		{"one\n", "two\n", ""},
		{"one\ntwo\none\ntwo\n", "", ""},
		{"one\ntwo\n", "one\ntwo\n", ""},
	} {
		folder := t.TempDir()
		source := filepath.Join(folder, "a/source.go")
		for name, text := range map[string]string{source: c.source, filepath.Join(folder, "a/other.go"): c.other, filepath.Join(folder, "a/a_test.go"): "one\ntwo\n"} {
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		file, content, err := mutants[0].apply(folder)
		if content != c.want || c.want != "" && file != source || (c.want == "") != errors.Is(err, errStale) {
			t.Errorf("%q beside %q: %s %q, %v", c.source, c.other, file, content, err)
		}
	}
	for _, wrong := range []string{"mutant x\nin a\n-a\n", "mutant x\ntest a\n-a\n", "in a\ntest a\n-a\n", "mutant x\nin a\ntest a\n", "else\n"} {
		if _, err := parse(wrong); err == nil {
			t.Errorf("%q was taken", wrong)
		}
	}
}

func TestAFailureIsTold(t *testing.T) {
	for out, want := range map[string]string{
		"--- FAIL: TestA (0.1s)\n    a_test.go:1: no\n--- FAIL: TestB (0.1s)\nFAIL\n": "TestA (0.1s)",
		"--- FAIL: TestSeeds/12 (0.1s)\n x\n  seed 12: b\nreplay: go\n seed 7: a\n":   "2 seeds, the first is 7: a",
		"--- FAIL: TestA (0.1s)\npanic: index out of range [recovered]\n":             "index out of range [recovered]",
		"FAIL\n": "fails",
	} {
		if got := failure(out); got != want {
			t.Errorf("%q: %q", out, got)
		}
	}
}
