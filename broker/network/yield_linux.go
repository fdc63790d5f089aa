package network

import "runtime"

// Yielder is for goroutines that compute for long in the process of a server. Who never blocks keeps its processor for ten milliseconds,
// and yields to nobody whom the network has woken: the scheduler looks there only when nothing else can run.
type Yielder struct{ places chan *look }

// NewYielder is for any number of goroutines, of which no more can compute at a time than there are processors.
func NewYielder() *Yielder {
	return &Yielder{newLooks(runtime.GOMAXPROCS(0))}
}

// Yield lets whoever the network has woken run first.
func (y *Yielder) Yield() {
	if l, open := <-y.places; open {
		l.yield()
		y.places <- l
	}
}

// Close has Yield do nothing any more.
func (y *Yielder) Close() {
	for range cap(y.places) {
		l, open := <-y.places
		if !open {
			return // it is closed
		}
		l.close()
	}
	close(y.places)
}
