package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// source is a file of a package, tests not included.
type source struct {
	pkg   string // path inside the module
	path  string // of the file, from the module's root
	fset  *token.FileSet
	file  *ast.File
	lines int
}

func readSources(packages []listedPackage) ([]source, error) {
	root, err := filepath.Abs(".")
	if err != nil {
		return nil, err
	}
	var list []source
	for _, p := range packages {
		for _, name := range slices.Concat(p.GoFiles, p.IgnoredFiles) {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			path, err := filepath.Rel(root, filepath.Join(p.Dir, name))
			if err != nil {
				return nil, err
			}
			s, err := parseSource(p.path(), path, nil)
			if err != nil {
				return nil, err
			}
			list = append(list, s)
		}
	}
	return list, nil
}

// parseSource reads a file from the disk, or from text where there is one.
func parseSource(pkg, path string, text any) (source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return source{}, err
	}
	return source{pkg, path, fset, file, fset.File(file.Pos()).LineCount()}, nil
}

func (s source) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", s.path, s.fset.Position(n.Pos()).Line)
}

// localName is the name by which the file refers to an imported path; it is empty when the file does not import it.
func (s source) localName(path string) string {
	for _, spec := range s.file.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err != nil || p != path {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		if base := filepath.Base(path); base != "v2" {
			return base
		}
		return filepath.Base(filepath.Dir(path))
	}
	return ""
}

// waitGroups names the variables, parameters and fields of type sync.WaitGroup: their method Go starts goroutines. A function of
// that name that somebody handed in does not: it is the shell's.
func (s source) waitGroups() map[string]bool {
	names := map[string]bool{}
	syncName := s.localName("sync")
	isGroup := func(e ast.Expr) bool {
		if pointer, ok := e.(*ast.StarExpr); ok {
			e = pointer.X
		}
		t, ok := e.(*ast.SelectorExpr)
		return ok && t.Sel.Name == "WaitGroup" && isName(t.X, syncName)
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		var declared []*ast.Ident
		switch n := n.(type) {
		case *ast.Field:
			if isGroup(n.Type) {
				declared = n.Names
			}
		case *ast.ValueSpec:
			if n.Type != nil && isGroup(n.Type) {
				declared = n.Names
			}
		}
		for _, name := range declared {
			names[name.Name] = true
		}
		return true
	})
	return names
}

// lastName is the last element of a chain of names, as of a.b.c.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// isName tells whether an expression is an identifier; never where name is empty.
func isName(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && name != "" && id.Name == name
}

// clock is what in package time looks at the clock or waits for it; what is left computes.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}

// checkSource looks for goroutines, clocks and global random numbers in the wrong kinds of packages.
func checkSource(s source, k kind) (findings []finding) {
	if k == shell || k == testOnly {
		return nil
	}
	report := func(n ast.Node, format string, args ...any) {
		findings = append(findings, finding{s.at(n), fmt.Sprintf(format, args...)})
	}
	groups, errgroup := s.waitGroups(), s.localName("golang.org/x/sync/errgroup")
	timeName := s.localName("time")
	randNames := []string{s.localName("math/rand"), s.localName("math/rand/v2")}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			if k != command { // which ends with its process
				report(n, "only a shell starts goroutines")
			}
		case *ast.SelectorExpr:
			if k != command && (n.Sel.Name == "Go" && groups[lastName(n.X)] || isName(n.X, errgroup)) {
				report(n, "only a shell starts goroutines, by errgroup or WaitGroup too")
			}
			from, ok := n.X.(*ast.Ident)
			if !ok || k != core && k != passive {
				break
			}
			if from.Name == timeName && slices.Contains(clock, n.Sel.Name) {
				report(n, "a %s package is told the time and does not look at it (time.%s)", k, n.Sel.Name)
			}
			if from.Name != "" && slices.Contains(randNames, from.Name) && isGlobalRandom(n.Sel.Name) {
				report(n, "a %s package is given its source of random numbers (rand.%s)", k, n.Sel.Name)
			}
		}
		return true
	})
	return findings
}

// isGlobalRandom tells whether a name of math/rand draws from the global source: the rest makes sources or names types.
func isGlobalRandom(name string) bool {
	switch name {
	case "Rand", "Source", "PCG", "ChaCha8", "Zipf":
		return false
	}
	return !strings.HasPrefix(name, "New")
}

// checkDocs wants a package comment in exactly one file of each package.
func checkDocs(sources []source) (findings []finding) {
	documented := map[string]int{}
	var order []string
	for _, s := range sources {
		if _, seen := documented[s.pkg]; !seen {
			documented[s.pkg] = 0
			order = append(order, s.pkg)
		}
		if s.file.Doc != nil {
			documented[s.pkg]++
		}
	}
	for _, pkg := range order {
		switch documented[pkg] {
		case 0:
			findings = append(findings, finding{pkg, "no package comment: what it promises, what it never does, who drives it"})
		case 1:
		default:
			findings = append(findings, finding{pkg, "more than one file has a package comment"})
		}
	}
	return findings
}

// lengthMax is where a file has outgrown its noun.
const lengthMax = 600

func checkLength(sources []source) (findings []finding) {
	for _, s := range sources {
		if s.lines > lengthMax {
			findings = append(findings, finding{s.path, fmt.Sprintf("%d lines; past %d look for the noun that wants out", s.lines, lengthMax)})
		}
	}
	return findings
}
