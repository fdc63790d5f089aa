package api

import "github.com/tidemark-io/tidemark/broker/config"

// WalkBody walks a body of a row by its layout. It tells how many bytes are left behind, and how many elements were counted.
func WalkBody(e *Entry, version int16, body []byte) (left, elements int, err error) {
	w := bodyWalk{rest: body, elements: config.RequestElementsMax}
	err = w.structure(layouts[e.Key][version-e.Min])
	return len(w.rest), config.RequestElementsMax - w.elements, err
}

// CheckLayout is what a request has to pass before it is decoded.
func CheckLayout(e *Entry, version int16, body []byte) error { return e.checkLayout(version, body) }
