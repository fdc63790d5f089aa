package metadata

import (
	"iter"
	"slices"
)

// chunkMax bounds a chunk of a sortedMap: large enough that the list of chunks stays short with 100,000 entries, small enough
// that copying one is a matter of 2 KiB.
const chunkMax = 64

// sortedMap is a persistent sorted map: with and without give a new one that shares all but a chunk and the list of chunks with the
// old. A look-up is two binary searches.
type sortedMap[K, V any] struct {
	compare func(K, K) int // nil only in the zero value, which is empty
	chunks  [][]entry[K, V]
	size    int
}

type entry[K, V any] struct {
	key   K
	value V
}

// find gives the chunk that holds key or would take it, and the place in it.
func (m sortedMap[K, V]) find(key K) (chunk, at int, found bool) {
	if len(m.chunks) == 0 {
		return 0, 0, false
	}
	chunk, exact := slices.BinarySearchFunc(m.chunks, key, func(c []entry[K, V], k K) int { return m.compare(c[0].key, k) })
	if exact {
		return chunk, 0, true
	}
	chunk = max(chunk-1, 0)
	at, found = slices.BinarySearchFunc(m.chunks[chunk], key, func(e entry[K, V], k K) int { return m.compare(e.key, k) })
	return chunk, at, found
}

func (m sortedMap[K, V]) len() int { return m.size }

func (m sortedMap[K, V]) get(key K) (V, bool) {
	chunk, at, found := m.find(key)
	if !found {
		var none V
		return none, false
	}
	return m.chunks[chunk][at].value, true
}

func (m sortedMap[K, V]) with(key K, value V) sortedMap[K, V] {
	e := entry[K, V]{key, value}
	chunk, at, found := m.find(key)
	switch {
	case found:
		changed := slices.Clone(m.chunks[chunk])
		changed[at] = e
		m.chunks = slices.Clone(m.chunks)
		m.chunks[chunk] = changed
		return m
	case len(m.chunks) == 0:
		m.chunks = [][]entry[K, V]{{e}}
	default:
		old := m.chunks[chunk]
		grown := make([]entry[K, V], 0, len(old)+1)
		grown = append(append(append(grown, old[:at]...), e), old[at:]...)
		if len(grown) <= chunkMax {
			m.chunks = slices.Clone(m.chunks)
			m.chunks[chunk] = grown
		} else {
			// Keys often come in order: leave the left chunk full then.
			cut := len(grown) / 2
			if at == len(old) {
				cut = len(old)
			}
			m.chunks = slices.Concat(m.chunks[:chunk], [][]entry[K, V]{grown[:cut], grown[cut:]}, m.chunks[chunk+1:])
		}
	}
	m.size++
	return m
}

func (m sortedMap[K, V]) without(key K) sortedMap[K, V] {
	chunk, at, found := m.find(key)
	if !found {
		return m
	}
	m.size--
	if rest := slices.Concat(m.chunks[chunk][:at], m.chunks[chunk][at+1:]); len(rest) > 0 {
		m.chunks = slices.Clone(m.chunks)
		m.chunks[chunk] = rest
	} else {
		m.chunks = slices.Concat(m.chunks[:chunk], m.chunks[chunk+1:])
	}
	return m
}

// all entries in order, from the first that is not below from.
func (m sortedMap[K, V]) all(from K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		chunk, at, _ := m.find(from)
		for ; chunk < len(m.chunks); chunk, at = chunk+1, 0 {
			for _, e := range m.chunks[chunk][at:] {
				if !yield(e.key, e.value) {
					return
				}
			}
		}
	}
}

func (m sortedMap[K, V]) values(from K) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, v := range m.all(from) {
			if !yield(v) {
				return
			}
		}
	}
}
