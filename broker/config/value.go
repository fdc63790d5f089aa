package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Normalize reads value as Kafka's ConfigDef does and gives it back in the text that DescribeConfigs shows: trimmed,
// numbers in plain decimal, true or false in lower case, list members joined by commas. The error's text is Kafka's.
func (d *Definition) Normalize(value string) (string, error) {
	if d.Type == List {
		list := SplitList(trim(value))
		if d.check.unique {
			list = dropRepeated(list)
		}
		if d.check.failList != nil {
			if err := d.check.failList(d.Name, list); err != nil {
				return "", err
			}
		}
		return strings.Join(list, ","), nil
	}
	text, err := d.parse(value)
	if err == nil && d.check.fail != nil {
		err = d.check.fail(d.Name, text)
	}
	return text, err
}

// trim is Java's String.trim.
func trim(s string) string { return strings.TrimFunc(s, func(r rune) bool { return r <= ' ' }) }

func (d *Definition) parse(value string) (string, error) {
	trimmed := trim(value)
	switch d.Type {
	case Boolean:
		switch strings.ToLower(trimmed) {
		case "true", "false":
			return strings.ToLower(trimmed), nil
		}
		return "", invalid(d.Name, value, "Expected value to be either true or false")
	case Int, Short, Long:
		bits := map[Type]int{Int: 32, Short: 16, Long: 64}[d.Type]
		n, err := strconv.ParseInt(trimmed, 10, bits)
		if err != nil {
			return "", invalid(d.Name, value, "Not a number of type "+d.Type.String())
		}
		return strconv.FormatInt(n, 10), nil
	case Double:
		f, err := parseJavaDouble(trimmed)
		if err != nil {
			return "", invalid(d.Name, value, "Not a number of type DOUBLE")
		}
		return formatJavaDouble(f), nil
	default:
		return trimmed, nil
	}
}

// SplitList is the members of a list's text, as Java splits it: none for the empty text, white space around commas dropped.
func SplitList(text string) []string {
	if text == "" {
		return nil
	}
	members := strings.Split(text, ",")
	for i := range members {
		members[i] = strings.TrimSpace(members[i])
	}
	return members
}

func dropRepeated(members []string) []string {
	var kept []string
	seen := make(map[string]bool, len(members))
	for _, m := range members {
		if !seen[m] {
			seen[m], kept = true, append(kept, m)
		}
	}
	return kept
}

// parseJavaDouble reads what Double.parseDouble reads in decimal: no hexadecimal, no underscores, NaN and Infinity by name.
func parseJavaDouble(s string) (float64, error) {
	switch strings.TrimLeft(s, "+-") {
	case "NaN":
		return math.NaN(), nil
	case "Infinity":
		return math.Inf(strings.Count(s, "-") * -1), nil
	}
	if strings.ContainsAny(s, "_xXpPiInN") {
		return 0, strconv.ErrSyntax
	}
	f, err := strconv.ParseFloat(strings.TrimRight(s, "dDfF"), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, err
	}
	return f, nil
}

// formatJavaDouble writes f as Double.toString does: 0.5, 1000.0, 1.7976931348623157E308.
func formatJavaDouble(f float64) string {
	switch a := math.Abs(f); {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 0):
		return strings.Replace(strconv.FormatFloat(f, 'g', -1, 64), "Inf", "Infinity", 1)
	case a == 0, a >= 1e-3 && a < 1e7:
		s := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	e, _ := strconv.Atoi(exponent)
	return mantissa + "E" + strconv.Itoa(e)
}

// invalid is the text of Kafka's ConfigException.
func invalid(name, value, why string) error {
	return fmt.Errorf("Invalid value %s for configuration %s: %s", value, name, why) //nolint:staticcheck // Kafka's own text
}
