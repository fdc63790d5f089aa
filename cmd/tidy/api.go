package main

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// apiPackage holds the table of API keys, with a file a key.
const apiPackage = "broker/api"

var apiFile = regexp.MustCompile(`^\d+_[a-z0-9_]+\.go$`)

// checkAPI holds the files of broker/api to its table: the handler of the row {NN, "SomeName", ...} is in NN_some_name.go,
// and every file of that form has a row.
func checkAPI(sources []source) (findings []finding) {
	declared := map[string]string{} // function: the file's base name
	files := map[string]source{}    // those still without a row
	var rows []*ast.CompositeLit
	var table source
	for _, s := range sources {
		if s.pkg != apiPackage {
			continue
		}
		base := path.Base(s.path)
		if apiFile.MatchString(base) {
			files[base] = s
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				declared[f.Name.Name] = base
			}
		}
		if list := tableOf(s); list != nil {
			rows, table = list, s
		}
	}
	for _, r := range rows {
		key, name, handler := readRow(r)
		if handler == "" {
			findings = append(findings, finding{table.at(r), "a row is {key, \"Name\", first version, last version, handler}"})
			continue
		}
		want := fmt.Sprintf("%02d_%s.go", key, snake(name))
		delete(files, want)
		if got := declared[handler]; got != want {
			findings = append(findings, finding{table.at(r), fmt.Sprintf("%s is in %q and belongs in %s", handler, got, want)})
		}
	}
	for _, s := range files {
		findings = append(findings, finding{s.path, "no row of the table of APIs belongs to it"})
	}
	return findings
}

// tableOf finds the rows of `var table = []Entry{...}`.
func tableOf(s source) (rows []*ast.CompositeLit) {
	for _, d := range s.file.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range group.Specs {
			v, ok := spec.(*ast.ValueSpec)
			if !ok || len(v.Names) != 1 || v.Names[0].Name != "table" || len(v.Values) != 1 {
				continue
			}
			list, ok := v.Values[0].(*ast.CompositeLit)
			if !ok {
				continue
			}
			for _, element := range list.Elts {
				if r, ok := element.(*ast.CompositeLit); ok {
					rows = append(rows, r)
				}
			}
		}
	}
	return rows
}

// readRow takes key and name from the front of a row, the handler from its end: a function, or a call around one.
func readRow(r *ast.CompositeLit) (key int, name, handler string) {
	if len(r.Elts) < 3 {
		return 0, "", ""
	}
	number, ok := r.Elts[0].(*ast.BasicLit)
	text, ok2 := r.Elts[1].(*ast.BasicLit)
	if !ok || !ok2 {
		return 0, "", ""
	}
	key, err := strconv.Atoi(number.Value)
	name, err2 := strconv.Unquote(text.Value)
	if err != nil || err2 != nil {
		return 0, "", ""
	}
	last := r.Elts[len(r.Elts)-1]
	if call, ok := last.(*ast.CallExpr); ok && len(call.Args) == 1 {
		last = call.Args[0]
	}
	if f, ok := last.(*ast.Ident); ok {
		handler = f.Name
	}
	return key, name, handler
}

// snake turns OffsetForLeaderEpoch into offset_for_leader_epoch.
func snake(name string) string {
	var b strings.Builder
	for i, c := range name {
		if unicode.IsUpper(c) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}
