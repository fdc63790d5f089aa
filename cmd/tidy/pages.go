package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// safety is the page of rules that tests refer to by number.
const safety = "docs/safety.md"

// checkPages holds the Markdown pages to what is there: links inside the repository lead somewhere, and each rule of the safety page
// that is not marked as later has a test.
func checkPages(root string) ([]finding, error) {
	pages := make(map[string]string)
	var tests strings.Builder
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if name != "." && strings.HasPrefix(name, ".") || name == "bin" || name == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".md") && !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(name, ".md") {
			pages[path] = string(text)
		} else {
			tests.Write(text)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var findings []finding
	for path, text := range pages {
		findings = append(findings, checkLinks(path, text)...)
	}
	rules, ok := pages[filepath.Join(root, safety)]
	if !ok {
		return nil, fmt.Errorf("%s is missing", safety)
	}
	return append(findings, checkRules(rules, tests.String())...), nil
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)

func checkLinks(page, text string) []finding {
	var findings []finding
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		if strings.Contains(m[1], "://") {
			continue
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); errors.Is(err, fs.ErrNotExist) {
			findings = append(findings, finding{page, "links to " + m[1] + ", which is not there"})
		}
	}
	return findings
}

var (
	rule       = regexp.MustCompile(`(?m)^(\d+)\. (.*)$`)
	safetyTest = regexp.MustCompile(`func TestSafety(\d\d)(?:And(\d\d))?[A-Z]`)
)

func checkRules(rules, tests string) []finding {
	tested := make(map[int]bool)
	for _, m := range safetyTest.FindAllStringSubmatch(tests, -1) {
		for _, text := range m[1:] {
			if n, err := strconv.Atoi(text); err == nil {
				tested[n] = true
			}
		}
	}
	var findings []finding
	for _, m := range rule.FindAllStringSubmatch(rules, -1) {
		n, _ := strconv.Atoi(m[1])
		if !tested[n] && !strings.HasPrefix(m[2], "*Later:*") && !strings.HasPrefix(m[2], "*Advice:*") {
			findings = append(findings, finding{safety, fmt.Sprintf("rule %d has no test TestSafety%02d...", n, n)})
		}
	}
	return findings
}
