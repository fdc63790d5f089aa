package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mutant is one change of one package, and the tests that have to fail with it.
type mutant struct {
	name          string
	folder        string
	test          []string // arguments of go test
	before, after string
}

// parse reads blocks that are separated by empty lines:
//
//	mutant 07 what is missing
//	in     broker/log
//	test   ./broker/log -run ^TestSafety07
//	-text that one file of the package has, and once
//	-it may be of several lines
//	+what stands there instead
//
// Lines that begin with # are comments.
func parse(text string) ([]mutant, error) {
	var mutants []mutant
	for block := range strings.SplitSeq(text, "\n\n") {
		var m mutant
		var before, after []string
		for line := range strings.SplitSeq(block, "\n") {
			switch word, rest, _ := strings.Cut(line, " "); {
			case line == "" || line[0] == '#':
			case line[0] == '-':
				before = append(before, line[1:])
			case line[0] == '+':
				after = append(after, line[1:])
			case word == "mutant":
				m.name = rest
			case word == "in":
				m.folder = strings.TrimSpace(rest)
			case word == "test":
				m.test = strings.Fields(rest)
			default:
				return nil, fmt.Errorf("%q is no line of a mutant", line)
			}
		}
		m.before, m.after = strings.Join(before, "\n"), strings.Join(after, "\n")
		switch {
		case m.name == "" && m.folder == "" && m.before == "":
		case m.name == "" || m.folder == "" || m.before == "" || len(m.test) == 0:
			return nil, fmt.Errorf("mutant %q in %q lacks a name, a folder, a test or its text", m.name, m.folder)
		default:
			mutants = append(mutants, m)
		}
	}
	return mutants, nil
}

var errStale = errors.New("its text is not in the package, or more than once")

// apply finds the file that the mutant changes, below root, and makes the change in its content.
func (m mutant) apply(root string) (file, content string, err error) {
	files, err := filepath.Glob(filepath.Join(root, m.folder, "*.go"))
	if err != nil {
		return "", "", err
	}
	found := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return "", "", err
		}
		if n := strings.Count(string(source), m.before); n > 0 {
			found += n
			file, content = name, strings.Replace(string(source), m.before, m.after, 1)
		}
	}
	if found != 1 {
		return "", "", fmt.Errorf("%s: %w", m.folder, errStale)
	}
	return file, content, nil
}
