package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

const longestShown = 10

func printLongest(out io.Writer, sources []source) {
	longest := slices.Clone(sources)
	slices.SortFunc(longest, func(a, b source) int {
		return cmp.Or(cmp.Compare(b.lines, a.lines), cmp.Compare(a.path, b.path))
	})
	for _, s := range longest[:min(len(longest), longestShown)] {
		fmt.Fprintf(out, "%5d %s\n", s.lines, s.path)
	}
}
