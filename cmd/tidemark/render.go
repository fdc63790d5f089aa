package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// view is a command's result: it marshals to JSON as it is, and writes itself as tables for people. Keys in JSON are snake_case; what
// tells of a bucket spells them as the objects in it do.
type view interface{ write(*page) }

// page is text with tables.
type page struct {
	out     *sticky
	table   *tabwriter.Writer
	written bool
}

func newPage(out io.Writer) *page { return &page{out: &sticky{out: out}} }

// end writes what is left, and returns the first error of all that was written.
func (p *page) end() error {
	p.flush()
	return p.out.err
}

// sticky is a writer that keeps its first error, for those who write much and look once.
type sticky struct {
	out io.Writer
	err error
}

func (s *sticky) Write(b []byte) (n int, err error) {
	if s.err == nil {
		n, s.err = s.out.Write(b)
	}
	return n, s.err
}

// buffered runs fn with the standard output behind a buffer. What fn has written is there afterwards, or that is the error.
func buffered(cmd *cobra.Command, fn func(out *bufio.Writer) error) error {
	out := bufio.NewWriter(cmd.OutOrStdout())
	err := fn(out)
	if lost := out.Flush(); lost != nil {
		return lost
	}
	return err
}

// heading begins a new table with its column names; an empty line stands between two.
func (p *page) heading(columns ...string) {
	p.flush()
	if p.written {
		fmt.Fprintln(p.out)
	}
	p.table = tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	p.written = true
	if len(columns) > 0 {
		fmt.Fprintln(p.table, strings.Join(columns, "\t"))
	}
}

// row adds a line to the table. Nothing stands as "-".
func (p *page) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		if texts[i] = cellText(cell); texts[i] == "" {
			texts[i] = "-"
		}
	}
	fmt.Fprintln(p.table, strings.Join(texts, "\t"))
}

func (p *page) flush() {
	if p.table != nil {
		p.table.Flush()
		p.table = nil
	}
}

func cellText(cell any) string {
	switch c := cell.(type) {
	case string:
		return c
	case []int32:
		texts := make([]string, len(c))
		for i, n := range c {
			texts[i] = strconv.Itoa(int(n))
		}
		return strings.Join(texts, ",")
	case []string:
		return strings.Join(c, ",")
	case *int64:
		if c == nil {
			return ""
		}
		return strconv.FormatInt(*c, 10)
	case *string:
		if c == nil {
			return ""
		}
		return *c
	default:
		return fmt.Sprint(c)
	}
}

// print writes the result as the flags ask.
func (a *app) print(cmd *cobra.Command, v view) error {
	out := cmd.OutOrStdout()
	if a.json {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(v)
	}
	p := newPage(out)
	v.write(p)
	return p.end()
}

// outcome is what became of one topic, group or partition.
type outcome struct {
	Name  string `json:"name"`
	Done  string `json:"done,omitempty"`
	Error string `json:"error,omitempty"`

	code int16
}

// outcomes is the view of commands that change several things.
type outcomes []outcome

func (o outcomes) write(p *page) {
	p.heading()
	for _, each := range o {
		if each.Error != "" {
			p.row(each.Name, "FAILED: "+each.Error)
			continue
		}
		p.row(each.Name, each.Done)
	}
	p.flush()
	var told []int16
	for _, each := range o {
		if advice := advices[each.code]; advice != "" && !slices.Contains(told, each.code) {
			fmt.Fprintln(p.out, advice)
			told = append(told, each.code)
		}
	}
}

// byName sorts the outcomes; those of one name keep their order.
func (o outcomes) byName() outcomes {
	slices.SortStableFunc(o, func(x, y outcome) int { return strings.Compare(x.Name, y.Name) })
	return o
}

// report prints the outcomes, and fails when one of them did.
func (a *app) report(cmd *cobra.Command, list outcomes) error {
	if err := a.print(cmd, list); err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(o outcome) bool { return o.Error != "" }) {
		return errReported
	}
	return nil
}

// became makes an outcome.
func became(name, done string, err error, message string) outcome {
	if err != nil {
		return outcome{Name: name, Error: describe(err, message), code: codeOf(err)}
	}
	return outcome{Name: name, Done: done}
}

// bytesText is a size for people.
func bytesText(n int64) string {
	const unit = 1024
	if n < unit {
		return strconv.FormatInt(n, 10) + " B"
	}
	value, suffix := float64(n), ""
	for _, suffix = range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		value /= unit
		if value < unit {
			break
		}
	}
	return strconv.FormatFloat(value, 'f', 1, 64) + " " + suffix
}

// marshalRows is the JSON of a list whose view has more to it than its rows; unlike json.Marshal it leaves < and > alone.
func marshalRows[T any](rows []T) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(rows)
	return text.Bytes(), err
}
