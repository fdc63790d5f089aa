package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/broker/wire"
)

// OpType is what IncrementalAlterConfigs does to a setting; the numbers are the protocol's.
type OpType int8

// The operations.
const (
	Set      OpType = 0
	Delete   OpType = 1
	Append   OpType = 2
	Subtract OpType = 3
)

// Op is one change of a setting. AlterConfigs is Set of all it names, applied to nothing.
type Op struct {
	Type  OpType
	Name  string
	Value *string
}

// Apply gives the overrides of a resource after ops; current stays as it is. It judges the form of the ops alone: Validate
// of the resource judges the outcome. Errors are *wire.Error with Kafka's texts.
func Apply(resource Resource, current map[string]string, ops []Op) (map[string]string, error) {
	if err := checkOps(ops); err != nil {
		return nil, err
	}
	next := maps.Clone(current)
	if next == nil {
		next = make(map[string]string)
	}
	for _, op := range ops {
		switch op.Type {
		case Set:
			next[op.Name] = *op.Value
		case Delete:
			delete(next, op.Name)
		case Append, Subtract:
			d, known := Lookup(resource, op.Name)
			if !known && resource == ResourceBroker {
				return nil, wire.NewError(wire.InvalidConfig, "Unknown config name: "+op.Name)
			}
			if !known || d.Type != List {
				return nil, notAList(resource, op)
			}
			value, set := next[op.Name]
			if !set && d.Default != Null {
				value = d.Default
			}
			value = changeList(value, op)
			if len(value) > math.MaxInt16 { // answers could not hold it
				return nil, wire.NewError(wire.InvalidConfig, fmt.Sprintf("The value of %s would be %d bytes long", op.Name, len(value)))
			}
			next[op.Name] = value
		}
	}
	return next, nil
}

func checkOps(ops []Op) error {
	names := make(map[string]bool, len(ops))
	var null []string
	for _, op := range ops {
		if names[op.Name] {
			return wire.NewError(wire.InvalidRequest, "Error due to duplicate config keys")
		}
		names[op.Name] = true
		if op.Type != Delete && op.Value == nil {
			null = append(null, op.Name)
		}
	}
	if len(null) > 0 {
		return wire.NewError(wire.InvalidRequest, "Null value not supported for : "+strings.Join(null, ","))
	}
	for _, op := range ops {
		if op.Type < Set || op.Type > Subtract {
			return wire.NewError(wire.UnknownServerError, fmt.Sprintf("Unknown operation %d", op.Type))
		}
	}
	return nil
}

func notAList(resource Resource, op Op) error {
	verb := map[OpType]string{Append: "APPEND", Subtract: "SUBTRACT"}[op.Type]
	if resource == ResourceBroker {
		return wire.NewError(wire.InvalidConfig, fmt.Sprintf("Config value %s is not allowed for config key: %s", strings.ToLower(verb), op.Name))
	}
	return wire.NewError(wire.InvalidConfig, fmt.Sprintf("Can't %s to key %s because its type is not LIST.", verb, op.Name))
}

// changeList appends the members that are not there yet, or takes each away once.
func changeList(value string, op Op) string {
	list := slices.DeleteFunc(strings.Split(value, ","), func(m string) bool { return m == "" })
	count := make(map[string]int, len(list))
	if op.Type == Subtract {
		for _, member := range operands(*op.Value) {
			count[member]++
		}
		list = slices.DeleteFunc(list, func(m string) bool { count[m]--; return count[m] >= 0 })
		return strings.Join(list, ",")
	}
	for _, member := range list {
		count[member]++
	}
	for _, member := range operands(*op.Value) {
		if count[member] == 0 {
			count[member], list = 1, append(list, member)
		}
	}
	return strings.Join(list, ",")
}

// operands are the members to append or subtract. Java's split leaves out empty ones at the end, but for the empty text, which is
// one.
func operands(text string) []string {
	trimmed := strings.TrimRight(text, ",")
	if trimmed == "" && text != "" {
		return nil
	}
	return strings.Split(trimmed, ",")
}
