package wire

import (
	"errors"
	"strconv"
)

// Code is a Kafka protocol error code. It is an error itself, so that errors.Is(err, wire.NotLeaderOrFollower) works.
type Code int16

// Error is the code's name in the protocol.
func (c Code) Error() string {
	if info, ok := codes[c]; ok {
		return info.name
	}
	return "ERROR_" + strconv.Itoa(int(c))
}

// Retriable tells whether clients try again on their own.
func (c Code) Retriable() bool { return codes[c].retriable }

// Error is a code with a text for people. The text reaches the client only where the message has a field for it.
type Error struct {
	Code    Code
	Message string
}

func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code.Error()
	}
	return e.Code.Error() + ": " + e.Message
}

// Unwrap makes errors.Is work with the bare code.
func (e *Error) Unwrap() error { return e.Code }

// NewError gives code a text for people.
func NewError(code Code, message string) *Error { return &Error{Code: code, Message: message} }

// CodeOf is the code inside err: None for nil, UnknownServerError for an error that carries no code.
func CodeOf(err error) Code {
	if err == nil {
		return None
	}
	if code, ok := errors.AsType[Code](err); ok {
		return code
	}
	return UnknownServerError
}

// MessageOf is the text for people inside err, or nil where there is none.
func MessageOf(err error) *string {
	var e *Error
	if errors.As(err, &e) && e.Message != "" {
		return &e.Message
	}
	return nil
}

type codeInfo struct {
	name      string
	retriable bool
}
