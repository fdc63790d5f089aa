//go:build !linux

package network

import "runtime"

// Yielder is for goroutines that compute for long in the process of a server.
type Yielder struct{}

// NewYielder is for any number of goroutines.
func NewYielder() *Yielder { return &Yielder{} }

// Yield lets others run.
func (*Yielder) Yield() { runtime.Gosched() }

// Close does nothing here.
func (*Yielder) Close() {}
