package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

const document = "# Doc\n\n```imports\n" + `
# package [kind]: what it may import
a/wire [core]: -
a/log [passive]: wire compress os
a/store, a/disk [driver]: -
a/store/... [driver]: store
a/server [shell]: *
a/logtest [test]: log
cmd/tool [command]: log
` + "```\n\nmore\n"

func rowsOf(t *testing.T) table {
	t.Helper()
	rows, err := parseRows(document)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestImportsAreHeldToTheTable(t *testing.T) {
	for _, c := range []struct {
		pkg, name string
		imports   string
		want      string // part of the finding; empty for none
	}{
		{"a/wire", "wire", "encoding/binary fmt net/netip", ""},
		{"a/wire", "wire", "net", "does no I/O"},
		{"a/wire", "wire", "os", "does no I/O"},
		{"a/wire", "wire", "crypto/rand", "does no I/O"},
		{"a/wire", "wire", "m.test/x/a/log", "does not list"},
		{"a/log", "log", "m.test/x/a/wire os github.com/k/compress/zstd", ""},
		{"a/log", "log", "os/signal", "does no I/O"},
		{"a/log", "log", "github.com/k/other", "does not list"},
		{"a/log", "log", "m.test/x/a/store", "does not list"},
		{"a/log", "log", "m.test/x/a/logtest", "for tests"},
		{"a/store", "store", "os net/http", ""},
		{"a/store/s3", "s3", "m.test/x/a/store net", ""},
		{"a/store/s3", "s3", "m.test/x/a/store/file", ""},
		{"a/server", "server", "m.test/x/a/log m.test/x/a/disk net os github.com/any/thing", ""},
		{"a/server", "server", "log", "log/slog"},
		{"a/server", "server", "m.test/x/a/logtest", "for tests"},
		{"a/logtest", "logtest", "m.test/x/a/log testing os", ""},
		{"cmd/tool", "main", "m.test/x/a/log os", ""},
		{"cmd/tool", "main", "m.test/x/a/wire", "does not list"},
		{"a/log", "main", "", "of kind command"},
		{"a/new", "new", "", "no row"},
	} {
		p := listedPackage{ImportPath: "m.test/x/" + c.pkg, Name: c.name, Imports: strings.Fields(c.imports)}
		p.Module.Path = "m.test/x"
		logtest := listedPackage{ImportPath: "m.test/x/a/logtest", Name: "logtest"}
		logtest.Module.Path = "m.test/x"
		got := checkImports([]listedPackage{p, logtest}, rowsOf(t))
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0].what, c.want)) {
			t.Errorf("%s importing %q: %v, want %q", c.pkg, c.imports, got, c.want)
		}
	}
}

func TestDamagedTablesAreRefused(t *testing.T) {
	for _, block := range []string{
		"", "```imports\na/b: c\n```", "```imports\na/b [odd]: c\n```", "```imports\na/b [core]:\n```", "```imports\na/b [core] c\n```",
	} {
		if rows, err := parseRows("\n" + block + "\n"); err == nil {
			t.Errorf("%q was read as %v", block, rows)
		}
	}
}

func TestTheProjectsTableIsRead(t *testing.T) {
	text, err := os.ReadFile("../../" + architecture)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := parseRows(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if rows.kindOf("broker/record") != core || rows.kindOf("tier/object/filestore") != driver || rows.kindOf("broker") != shell {
		t.Error(rows)
	}
}

func TestClocksGoroutinesAndChance(t *testing.T) {
	const source = `// Package p is a sample.
package p

import (
	"math/rand/v2"
	"sync"; "time"
)

func f(g *sync.WaitGroup, o options, now time.Time) {
	go f(g, now)
	g.Go(nil); o.Go(nil)
	_ = time.Now()
	time.AfterFunc(0, nil)
	_ = now.Add(time.Second).After(now)
	_ = rand.IntN(3)
	r := rand.New(rand.NewPCG(1, 2))
	_ = r.IntN(3)
}
`
	all := []string{"p.go:10", "p.go:11", "p.go:12", "p.go:13", "p.go:15"}
	for k, want := range map[kind][]string{
		core: all, passive: all, driver: {"p.go:10", "p.go:11"}, command: nil, shell: nil, kind("test"): nil,
	} {
		s, err := parseSource("p", "p.go", source)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range checkSource(s, k) {
			got = append(got, f.where)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", k, got, want)
		}
	}
}

func TestPackagesHaveOneComment(t *testing.T) {
	parse := func(pkg, text string) source {
		s, err := parseSource(pkg, pkg+"/f.go", text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const with, without = "// Package p is a sample.\npackage p\n", "package p\n"
	got := checkDocs([]source{
		parse("good", with), parse("good", without),
		parse("none", without),
		parse("twice", with), parse("twice", with),
	})
	if len(got) != 2 || got[0].where != "none" || got[1].where != "twice" {
		t.Error(got)
	}
}

func TestAPIFilesAreNamedAfterTheirKeys(t *testing.T) {
	parse := func(path, text string) source {
		s, err := parseSource(apiPackage, apiPackage+"/"+path, text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	sources := []source{
		parse("table.go", `package api
var table = []Entry{
	{0, "Produce", 3, 13, typed(handleProduce)},
	{18, "ApiVersions", 0, 5, handleVersions},
	{23, "OffsetForLeaderEpoch", 2, 4, typed(handleEpoch)},
	{24, "Elsewhere", 2, 4, typed(handleElsewhere)},
	odd[0],
	{25},
}`),
		parse("00_produce.go", "package api\nfunc handleProduce() {}\nfunc handleElsewhere() {}"),
		parse("18_api_versions.go", "package api\nfunc handleVersions() {}"),
		parse("23_offset_for_leader_epoch.go", "package api\nfunc handleEpoch() {}"),
		parse("99_orphan.go", "package api"),
		parse("helper.go", "package api"),
	}
	var got []string
	for _, f := range checkAPI(sources) {
		got = append(got, f.where+" "+f.what)
	}
	want := []string{
		apiPackage + `/table.go:6 handleElsewhere is in "00_produce.go" and belongs in 24_elsewhere.go`,
		apiPackage + `/table.go:8 a row is {key, "Name", first version, last version, handler}`,
		apiPackage + "/99_orphan.go no row of the table of APIs belongs to it",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestLongFilesAreReported(t *testing.T) {
	s, err := parseSource("p", "p.go", "package p\n"+strings.Repeat("\n", lengthMax))
	if err != nil {
		t.Fatal(err)
	}
	if got := checkLength([]source{s}); len(got) != 1 {
		t.Error(got)
	}
	s.lines = lengthMax
	if got := checkLength([]source{s}); len(got) != 0 {
		t.Error(got)
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	text := "[a](tidy_test.go) [b](nowhere.md#x) [c](https://example.com/x) [d](#here) [e](../tidy/main.go#L3)"
	if got := checkLinks("page.md", text); len(got) != 1 || !strings.Contains(got[0].what, "nowhere.md") {
		t.Errorf("%v", got)
	}
}

func TestRulesHaveTests(t *testing.T) {
	rules := "# Rules\n\n1. One.\n   more\n2. *Later:* two.\n3. Three. *Later:* more.\n10. Ten.\n12. *Advice:* twelve.\n"
	tests := "func TestSafety01AndMore(t *testing.T) {\n// func TestSafety3\nfunc TestSafety05And10Both(t *testing.T) {"
	got := checkRules(rules, tests)
	if len(got) != 1 || !strings.Contains(got[0].what, "rule 3 ") {
		t.Errorf("%v", got)
	}
}
