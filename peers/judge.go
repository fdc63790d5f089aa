package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
)

// Outcomes of a scenario that are no single difference; they stand in the place of the field.
const (
	skipped = "SKIP" // the broker does not announce an API of the scenario
	failed  = "FAIL" // the scenario could not be played
)

// difference is a line of the report: an answer's field, or a whole scenario.
type difference struct {
	scenario, step, field string
	text                  string // what differ says of it
}

// entry is a line of the list of known differences. In scenario, step and field "*" stands for anything.
type entry struct {
	scenario, step, field string
	reason                string
	line                  int
	used                  int
}

// parseAllowList reads rows of scenario, step, field and reason.
func parseAllowList(text string) ([]*entry, error) {
	var list []*entry
	err := rows(text, []string{"scenario", "step", "field", "reason"}, func(line int, f []string) {
		list = append(list, &entry{scenario: f[0], step: f[1], field: f[2], reason: f[3], line: line})
	})
	return list, err
}

// rows reads tab-separated lines of fields, of which the last, which says why, is not empty; # begins a comment.
func rows(text string, fields []string, each func(line int, f []string)) error {
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) != len(fields) || strings.TrimSpace(f[len(f)-1]) == "" {
			return fmt.Errorf("line %d is not %s", i+1, strings.Join(fields, ", "))
		}
		each(i+1, f)
	}
	return nil
}

func (e *entry) covers(d difference) bool {
	if d.field == skipped || d.field == failed {
		return e.field == d.field && matches(e.scenario, d.scenario) // "*" for a field is no licence to skip
	}
	return matches(e.scenario, d.scenario) && matches(e.step, d.step) && matches(e.field, d.field)
}

// matches tells whether text fits a pattern in which "*" stands for any run of characters.
func matches(pattern, text string) bool {
	before, after, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, before)
	for ok && len(text) > 0 {
		if matches(after, text) {
			return true
		}
		text = text[1:]
	}
	return ok && matches(after, text)
}

var (
	scenarioLine = regexp.MustCompile(`^(OK|SKIP|DIFF|FAIL) +(\S+)$`)
	detailLine   = regexp.MustCompile(`^     (.*)$`)
	fieldDetail  = regexp.MustCompile(`^(.*?)(?:, ([^ ]+))?: ref=`)
	listIndex    = regexp.MustCompile(`\[\d+\]`)
	closing      = regexp.MustCompile(`(?m)^PASS \d+ FAIL \d+ SKIP \d+$`)
)

// closingLine is the last line of a whole report.
func closingLine(report string) (string, bool) {
	line := closing.FindString(report)
	return line, line != ""
}

// parseReport reads what differ printed with -v.
func parseReport(report string) (list []difference, passed int) {
	var word, name string
	for line := range strings.SplitSeq(report, "\n") {
		if m := scenarioLine.FindStringSubmatch(line); m != nil {
			word, name = m[1], m[2]
			if word == "OK" {
				passed++
			}
			continue
		}
		m := detailLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		d := difference{scenario: name, text: m[1]}
		switch word {
		case "SKIP", "FAIL":
			d.field = word
		case "DIFF":
			parts := fieldDetail.FindStringSubmatch(m[1])
			if parts == nil {
				d.field = failed
				break
			}
			// Where in a list a field stands changes with what comes before it.
			d.step, d.field = parts[1], listIndex.ReplaceAllString(parts[2], "")
		default:
			continue
		}
		list = append(list, d)
	}
	return list, passed
}

// judge prints what the list does not explain, and counts it as failed. With whole, entries that explain nothing fail as well.
func judge(out io.Writer, report string, known []*entry, whole bool) tally {
	differences, passed := parseReport(report)
	count := tally{passed: passed}
	excused := 0
	for _, d := range differences {
		covered := false
		for _, e := range known {
			if e.covers(d) {
				e.used++
				covered = true
			}
		}
		if covered {
			excused++
			continue
		}
		count.failed++
		fmt.Fprintf(out, "NEW  %s: %s\n", d.scenario, d.text)
	}
	for _, e := range known {
		if e.used == 0 && whole {
			count.failed++
			fmt.Fprintf(out, "OLD  line %d of the list is not needed any more: %s, %s, %s (%s)\n", e.line, e.scenario, e.step, e.field, e.reason)
		}
	}
	if _, found := closingLine(report); !found {
		count.failed++
		fmt.Fprintln(out, "the report has no closing line")
	}
	fmt.Fprintf(out, "differ: %d scenarios equal, %d differences known, %d new\n", passed, excused, len(differences)-excused)
	return count
}
