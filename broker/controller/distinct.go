package controller

import "github.com/tidemark-io/tidemark/broker/wire"

// listed is an item of a request's list, and whether another item has the same name.
type listed[T any] struct {
	item     T
	repeated bool
}

var errDuplicateName = refusal(wire.InvalidRequest, "Duplicate topic name.")

// distinct keeps the first item of each name, in order.
func distinct[T any](items []T, name func(T) string) []listed[T] {
	at := make(map[string]int, len(items))
	var list []listed[T]
	for _, item := range items {
		if i, seen := at[name(item)]; seen {
			list[i].repeated = true
			continue
		}
		at[name(item)] = len(list)
		list = append(list, listed[T]{item: item})
	}
	return list
}
