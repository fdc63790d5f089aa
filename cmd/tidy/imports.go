package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// architecture is the document with the table of packages.
const architecture = "docs/architecture.md"

// kind says what a package may do beside computing.
type kind string

// The kinds of packages, from strict to free.
const (
	core     kind = "core"    // no clock, no goroutine, no I/O
	passive  kind = "passive" // I/O through interfaces; no clock, no goroutine
	driver   kind = "driver"  // the I/O behind such an interface; may wait; no goroutine
	shell    kind = "shell"   // owns goroutines
	command  kind = "command" // a main package
	testOnly kind = "test"    // imported by tests alone
)

// row is a line of the table: packages, their kind, and what they may import.
type row struct {
	pkg     string // path inside the module; one that ends in /... stands for everything below as well
	kind    kind
	allowed []string // last elements of packages of the module, elements of other import paths; "*" for all
}

type table []row

// of finds the row of a package: its own, or the longest pattern that covers it.
func (t table) of(pkg string) (row, bool) {
	var found row
	for _, r := range t {
		base, below := strings.CutSuffix(r.pkg, "/...")
		if (pkg == base || below && strings.HasPrefix(pkg, base+"/")) && len(r.pkg) > len(found.pkg) {
			found = r
		}
	}
	return found, found.pkg != ""
}

func (t table) kindOf(pkg string) kind {
	r, _ := t.of(pkg)
	return r.kind
}

const fence = "```"

var errNoTable = errors.New("no block ```imports")

// parseRows reads the table from the document's fenced block "imports": lines of the form
//
//	broker/log, broker/other [passive]: wire record vfs
//
// with "-" for no imports at all. Lines that begin with # are comments.
func parseRows(document string) (table, error) {
	_, block, found := strings.Cut(document, "\n"+fence+"imports\n")
	if !found {
		return nil, errNoTable
	}
	block, _, _ = strings.Cut(block, "\n"+fence)
	var rows table
	for line := range strings.Lines(block) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		left, right, ok := strings.Cut(line, ":")
		names, k, ok2 := strings.Cut(left, "[")
		k, ok3 := strings.CutSuffix(strings.TrimSpace(k), "]")
		if !ok || !ok2 || !ok3 {
			return nil, fmt.Errorf("%q is not of the form \"packages [kind]: imports\"", line)
		}
		if !slices.Contains([]kind{core, passive, driver, shell, command, testOnly}, kind(k)) {
			return nil, fmt.Errorf("%q: no such kind", line)
		}
		allowed := strings.Fields(right)
		if len(allowed) == 0 {
			return nil, fmt.Errorf("%q: what it may import is missing, \"-\" for nothing", line)
		}
		for name := range strings.SplitSeq(names, ",") {
			rows = append(rows, row{pkg: strings.TrimSpace(name), kind: kind(k), allowed: allowed})
		}
	}
	return rows, nil
}

// listedPackage is what go list tells of a package.
type listedPackage struct {
	ImportPath   string
	Name         string
	Dir          string
	GoFiles      []string
	IgnoredFiles []string `json:"IgnoredGoFiles"` // for other systems
	Imports      []string // tests not included
	Module       struct{ Path string }
}

// path is the package's path inside the module; "." is the module's own.
func (p *listedPackage) path() string {
	if p.ImportPath == p.Module.Path {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, p.Module.Path+"/")
}

func listPackages(ctx context.Context) ([]listedPackage, error) {
	// -e: a package that does not compile is the compiler's to report.
	out, err := exec.CommandContext(ctx, "go", "list", "-e", "-json=ImportPath,Name,Dir,GoFiles,IgnoredGoFiles,Imports,Module", "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var list []listedPackage
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listedPackage
		err := decoder.Decode(&p)
		if err == io.EOF {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
}

// checkImports holds every package to its row.
func checkImports(packages []listedPackage, rows table) (findings []finding) {
	var module string
	kinds := map[string]kind{}
	for _, p := range packages {
		module = p.Module.Path
		kinds[p.ImportPath] = rows.kindOf(p.path())
	}
	for _, p := range packages {
		r, ok := rows.of(p.path())
		if !ok {
			findings = append(findings, finding{p.path(), "the table of packages in " + architecture + " has no row for it"})
			continue
		}
		if p.Name == "main" && r.kind != command {
			findings = append(findings, finding{p.path(), "a main package is of kind command"})
		}
		for _, imported := range p.Imports {
			why := r.refuses(imported, module)
			if kinds[imported] == testOnly && r.kind != testOnly {
				why = "which is for tests"
			}
			if why != "" {
				findings = append(findings, finding{p.path(), "imports " + imported + ", " + why})
			}
		}
	}
	return findings
}

// refuses says why a package of this row may not import a path, or nothing.
func (r row) refuses(imported, module string) string {
	inside, own := strings.CutPrefix(imported, module+"/")
	if imported == "log" {
		return "but everything logs by log/slog"
	}
	if slices.Contains(r.allowed, "*") {
		return ""
	}
	const unlisted = "which its row in " + architecture + " does not list"
	switch {
	case own:
		// A package may use what lies below itself.
		if strings.HasPrefix(inside, strings.TrimSuffix(r.pkg, "/...")+"/") {
			return ""
		}
		for _, name := range r.allowed {
			if inside == name || strings.HasSuffix(inside, "/"+name) {
				return ""
			}
		}
		return unlisted
	case isStandard(imported):
		if r.kind != core && r.kind != passive || !doesIO(imported) || slices.Contains(r.allowed, imported) {
			return ""
		}
		return "but a " + string(r.kind) + " package does no I/O of its own unless its row lists it"
	}
	for element := range strings.SplitSeq(imported, "/") {
		if slices.Contains(r.allowed, element) {
			return ""
		}
	}
	return unlisted
}

// isStandard tells whether a path is of the standard library: its first element has no dot.
func isStandard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// doesIO tells whether a package of the standard library reaches out of the process.
func doesIO(imported string) bool {
	switch imported {
	case "net/netip", "net/url":
		return false // values
	}
	switch first, _, _ := strings.Cut(imported, "/"); first {
	case "os", "net", "syscall":
		return true
	}
	return path.Dir(imported) == "crypto" && path.Base(imported) == "rand"
}
