package broker_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every fault that docs/known-faults.md lists is in the tests that it names, under its id; what has no test says what it waits for.
func TestKnownFaultsAreTested(t *testing.T) {
	table, err := os.ReadFile("../docs/known-faults.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| BO-(\d{3}) \|.*\| ([^|]*) \|$`).FindAllStringSubmatch(string(table), -1)
	if len(rows) < 60 {
		t.Errorf("%d rows", len(rows))
	}
	for _, row := range rows {
		named := regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(row[2], -1)
		if len(named) == 0 && !strings.Contains(row[2], "waits for") {
			t.Errorf("BO-%s has no test", row[1])
		}
		id := regexp.MustCompile("BO-?" + row[1] + `\D`)
		for _, file := range named {
			text, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(file[1])))
			if err != nil || !id.Match(text) {
				t.Errorf("BO-%s is not in %s: %v", row[1], file[1], err)
			}
		}
	}
}
