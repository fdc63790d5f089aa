// Command tidy holds the repository to the rules of docs/architecture.md that no compiler knows: which package may import
// which, who starts goroutines, who may look at a clock, that the file of an API is named after its key, that packages say
// what they promise, that files do not grow without end, that links between pages lead somewhere, and that the rules of
// docs/safety.md have tests. It prints a line a finding and exits 1 if there is one.
//
//	go run ./cmd/tidy          check
//	go run ./cmd/tidy -sizes   also list the ten longest files
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"sort"
)

// finding is a breach of a rule, at a file (with a line where there is one) or a package.
type finding struct {
	where string
	what  string
}

func main() {
	sizes := flag.Bool("sizes", false, "list the ten longest files")
	flag.Parse()
	findings, err := check(context.Background(), os.Stdout, *sizes)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tidy:", err)
		os.Exit(2)
	}
	for _, f := range findings {
		fmt.Printf("%s: %s\n", f.where, f.what)
	}
	if len(findings) > 0 {
		os.Exit(1)
	}
}

// check runs every check over the module in the working directory.
func check(ctx context.Context, out io.Writer, sizes bool) ([]finding, error) {
	document, err := os.ReadFile(architecture)
	if err != nil {
		return nil, err
	}
	rows, err := parseRows(string(document))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", architecture, err)
	}
	packages, err := listPackages(ctx)
	if err != nil {
		return nil, err
	}
	sources, err := readSources(packages)
	if err != nil {
		return nil, err
	}
	findings := checkImports(packages, rows)
	for _, s := range sources {
		findings = append(findings, checkSource(s, rows.kindOf(s.pkg))...)
	}
	findings = append(findings, checkDocs(sources)...)
	findings = append(findings, checkAPI(sources)...)
	findings = append(findings, checkLength(sources)...)
	pages, err := checkPages(".")
	if err != nil {
		return nil, err
	}
	findings = append(findings, pages...)
	if sizes {
		printLongest(out, sources)
	}
	sort.Slice(findings, func(i, j int) bool { return findings[i].where < findings[j].where })
	return findings, nil
}
