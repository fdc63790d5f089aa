package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// check is the validator of a setting. It sees the normalized text; the texts of its errors are Kafka's.
type check struct {
	unique   bool // a list whose repeated members count once
	fail     func(name, text string) error
	failList func(name string, members []string) error
}

var anyValue = check{}

// atLeast bounds a number from below.
func atLeast(low float64) check { return check{fail: bounds(low, nil)} }

// between bounds a number; both ends are allowed.
func between(low, high float64) check { return check{fail: bounds(low, &high)} }

func bounds(low float64, high *float64) func(name, text string) error {
	return func(name, text string) error {
		n, _ := strconv.ParseFloat(text, 64) // normalized before; 2^53 and more lie far from every bound
		switch {
		case n < low:
			return invalid(name, text, "Value must be at least "+strconv.FormatFloat(low, 'f', -1, 64))
		case high != nil && n > *high:
			return invalid(name, text, "Value must be no more than "+strconv.FormatFloat(*high, 'f', -1, 64))
		}
		return nil
	}
}

var gzipLevel = check{fail: func(name, text string) error {
	if n, _ := strconv.Atoi(text); n != -1 && (n < 1 || n > 9) {
		return invalid(name, text, "Value must be between 1 and 9 or equal to -1")
	}
	return nil
}}

var nonEmpty = check{fail: func(name, text string) error {
	if text == "" {
		return invalid(name, text, "String must be non-empty")
	}
	return nil
}}

// oneOf allows the named texts.
func oneOf(allowed ...string) check {
	return check{fail: func(name, text string) error {
		if !slices.Contains(allowed, text) {
			return invalid(name, text, "String must be one of: "+strings.Join(allowed, ", "))
		}
		return nil
	}}
}

// oneOfFold allows the named texts in any case.
func oneOfFold(allowed ...string) check {
	return check{fail: func(name, text string) error {
		if !slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(a, text) }) {
			return invalid(name, text, "String must be one of (case insensitive): "+strings.Join(allowed, ", "))
		}
		return nil
	}}
}

// anyMembers allows a list of any non-empty members, or none.
var anyMembers = members()

// members allows a list of the named members, of any where none are named. The list may be empty.
func members(allowed ...string) check {
	one := oneOf(allowed...)
	return check{unique: true, failList: func(name string, list []string) error {
		for _, member := range list {
			if member == "" {
				return fmt.Errorf("Configuration '%s' values must not be empty.", name) //nolint:staticcheck,revive // Kafka's own text
			}
			if len(allowed) > 0 {
				if err := one.fail(name, member); err != nil {
					return err
				}
			}
		}
		return nil
	}}
}

// someMembers is members without the empty list.
func someMembers(allowed ...string) check {
	each := members(allowed...)
	valid := "any non-empty value"
	if len(allowed) > 0 {
		valid = "[" + strings.Join(allowed, ", ") + "]"
	}
	return check{unique: true, failList: func(name string, list []string) error {
		if len(list) == 0 {
			return fmt.Errorf("Configuration '%s' must not be empty. Valid values include: %s", name, valid) //nolint:staticcheck // Kafka's own text
		}
		return each.failList(name, list)
	}}
}

var throttledReplica = regexp.MustCompile(`^(?:[0-9]+:[0-9]+)?$`)

// throttledReplicas allows "*" and lists of partition:broker.
var throttledReplicas = check{failList: func(name string, list []string) error {
	wrong := slices.ContainsFunc(list, func(m string) bool { return !throttledReplica.MatchString(m) })
	if wrong && !slices.Equal(list, []string{"*"}) {
		return invalid(name, "["+strings.Join(list, ", ")+"]", name+
			" must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...")
	}
	return nil
}}

var isoDuration = regexp.MustCompile(`^(?i:P(?:\d+D)?(?:T(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d{1,9})?S)?)?)$`)

// autoOffsetReset allows latest, earliest and by_duration with an ISO 8601 duration.
var autoOffsetReset = check{fail: func(name, text string) error {
	if text == "latest" || text == "earliest" {
		return nil
	}
	if d, ok := strings.CutPrefix(text, "by_duration:"); ok && isoDuration.MatchString(d) && !strings.HasSuffix(strings.ToUpper(d), "T") && len(d) > 1 {
		return nil
	}
	return invalid(name, text, "Invalid value `"+text+"` for configuration "+name+
		". The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.")
}}
