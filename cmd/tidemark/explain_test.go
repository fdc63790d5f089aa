package main

import (
	"fmt"
	"net"
	"testing"

	"github.com/tidemark-io/tidemark/tier/object"
)

func TestAStoreThatDoesNotAnswerIsNoBrokerThatDoesNot(t *testing.T) {
	refused := fmt.Errorf("open: %w: %w", object.ErrUnavailable, &net.OpError{Op: "dial", Err: net.ErrClosed})
	if got := explain(refused, []string{"a:1"}); got != refused.Error() {
		t.Errorf("%q", got)
	}
}

func TestAPortThatIsTakenIsNoBrokerThatDoesNotAnswer(t *testing.T) {
	taken := fmt.Errorf("listen: %w", &net.OpError{Op: "listen", Err: net.ErrClosed})
	if got := explain(taken, []string{"a:1"}); got != taken.Error() {
		t.Errorf("%q", got)
	}
}
