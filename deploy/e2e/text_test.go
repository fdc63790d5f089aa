package e2e

import (
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// recording tells whether transcripts are rewritten.
func recording() bool {
	return flag.Lookup("rewrite").Value.String() == "true"
}

// noise is what says nothing of the broker: the stack traces of Java's exceptions, and what the clients advertise.
var noise = regexp.MustCompile(`^(\s+(at \S+\(.*\)|\.\.\. \d+ more)|The consumer rebalance protocol \(KIP-848\) is .*)$`)

// masks hide what is different each time, in order.
var masks = []struct {
	pattern     *regexp.Regexp
	replacement string
}{
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "UUID"},
	{regexp.MustCompile(`(TopicId: |Cluster ID: )[\w-]{22}\b`), "${1}ID"},
	{regexp.MustCompile(`\b1[78]\d{11}\b`), "MILLISECONDS"},
	{regexp.MustCompile(`"avg_throughput":[\d.]+`), `"avg_throughput":N`},
	{regexp.MustCompile(`\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\]`), "[TIME]"},
}

// mask hides what is different each time, such as ids, addresses and times.
func (s *scenario) mask(lines []string) []string {
	host, port, _ := strings.Cut(s.broker.address, ":")
	own := strings.NewReplacer(s.tmp, "$tmp", s.broker.folder, "DATA", s.broker.address, "BROKER", host+" "+port, host+" PORT ")
	var masked []string
	for _, line := range lines {
		if noise.MatchString(strings.TrimSuffix(line, "\n")) {
			continue
		}
		line = own.Replace(line)
		for _, m := range masks {
			line = m.pattern.ReplaceAllString(line, m.replacement)
		}
		masked = append(masked, line)
	}
	return masked
}

// leaveOut drops the lines that match a pattern.
func leaveOut(patterns []*regexp.Regexp, lines []string) []string {
	return slices.DeleteFunc(lines, func(line string) bool {
		line = strings.TrimSuffix(line, "\n")
		return slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(line) })
	})
}

// matchShape says what is wrong with lines that should have a shape: a regular expression for each kind of line.
func matchShape(shape string, lines []string) string {
	var wrong strings.Builder
	expressions := slices.Collect(strings.Lines(shape))
	used := make([]bool, len(expressions))
	for _, line := range lines {
		found := false
		for i, e := range expressions {
			if ok, err := regexp.MatchString("^(?:"+strings.TrimSuffix(e, "\n")+")$", strings.TrimSuffix(line, "\n")); err != nil {
				fmt.Fprintln(&wrong, err)
			} else if ok {
				used[i], found = true, true
			}
		}
		if !found {
			fmt.Fprintf(&wrong, "not expected: %s", line)
		}
	}
	for i, e := range expressions {
		if !used[i] {
			fmt.Fprintf(&wrong, "no such line: %s", e)
		}
	}
	return wrong.String()
}

var errOpenQuote = errors.New("a quote is not closed")

// splitWords splits a command as a shell does: at spaces, but for those in single or double quotes.
func splitWords(command string) ([]string, error) {
	var words []string
	var word strings.Builder
	var quote rune
	inWord := false
	for _, r := range command {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == ' ':
			if inWord {
				words = append(words, word.String())
				word.Reset()
			}
			inWord = false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, errOpenQuote
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

func TestCommandsSplitAsInAShell(t *testing.T) {
	got, err := splitWords(`a  --b 'c d' "e'f"g ''`)
	if want := []string{"a", "--b", "c d", "e'fg", ""}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if _, err := splitWords(`a 'b`); err == nil {
		t.Error("an open quote is accepted")
	}
}

func TestLinesAreLeftOutByWhole(t *testing.T) {
	got := leaveOut([]*regexp.Regexp{regexp.MustCompile(`^b:\d$`)}, []string{"a:1\n", "b:1\n", "b:12\n"})
	if want := []string{"a:1\n", "b:12\n"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAShapeNamesEachLineAndEachLineHasAShape(t *testing.T) {
	const shape = "a \\d+\nb\n"
	for _, c := range []struct {
		lines []string
		wrong string
	}{
		{[]string{"a 1\n", "b\n", "a 22\n"}, ""},
		{[]string{"a 1\n", "b\n", "c\n"}, "not expected: c\n"},
		{[]string{"a 1\n"}, "no such line: b\n"},
		{[]string{"a 1 2\n", "b\n"}, "not expected: a 1 2\nno such line: a \\d+\n"},
	} {
		if got := matchShape(shape, c.lines); got != c.wrong {
			t.Errorf("%q: got %q, want %q", c.lines, got, c.wrong)
		}
	}
}

func TestMasksHideWhatVaries(t *testing.T) {
	s := &scenario{tmp: "/tmp/x", broker: &broker{address: "127.0.0.1:30001", folder: "/tmp/data"}}
	got := s.mask([]string{
		"Topic: a\tTopicId: 2n7wqs_qRa2m-kLTiKi_7Q\tPartitionCount: 1\n",
		"consumer-0a1b2c3d-0000-1111-2222-0123456789ab /127.0.0.1:30001 offset 1712345\n",
		"CreateTime:1764449876543\tv\n",
		"\tat org.apache.kafka.Foo.bar(Foo.java:12)\n",
		"Dumping /tmp/data/a-0/0.log\n",
	})
	want := []string{
		"Topic: a\tTopicId: ID\tPartitionCount: 1\n",
		"consumer-UUID /BROKER offset 1712345\n",
		"CreateTime:MILLISECONDS\tv\n",
		"Dumping DATA/a-0/0.log\n",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
