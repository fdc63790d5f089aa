package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-io/tidemark/tier/object"
)

// errReported ends a command whose output already said what went wrong.
var errReported = errors.New("reported")

// explain is err for people: what happened, and what to do where that is known.
func explain(err error, bootstrap []string) string {
	var kafka *kerr.Error
	var network *net.OpError
	switch {
	case errors.As(err, &kafka):
		return withAdvice(err.Error(), kafka.Code)
	case errors.Is(err, object.ErrUnavailable): // nobody has asked a broker
		return err.Error()
	case errors.As(err, &network) && network.Op != "listen", errors.Is(err, context.DeadlineExceeded), errors.Is(err, kgo.ErrRecordTimeout):
		return fmt.Sprintf("%v\nNo answer from %s. Start a broker with `tidemark dev`, or name another with --bootstrap.", err, strings.Join(bootstrap, ", "))
	default:
		return err.Error()
	}
}

func withAdvice(text string, code int16) string {
	if advice := advices[code]; advice != "" {
		return text + "\n" + advice
	}
	return text
}

// advices says what to do about an error of the cluster.
var advices = map[int16]string{
	kerr.UnknownTopicOrPartition.Code:  "`tidemark topic list` shows the topics.",
	kerr.TopicAlreadyExists.Code:       "Use --if-not-exists to let it be.",
	kerr.InvalidReplicationFactor.Code: "`tidemark cluster describe` shows how many brokers there are.",
	kerr.InvalidPartitions.Code:        "Partitions can only be added.",
	kerr.NonEmptyGroup.Code:            "Stop its members first; `tidemark group members` shows them.",
	kerr.GroupIDNotFound.Code:          "`tidemark group list` shows the groups.",
	kerr.GroupSubscribedToTopic.Code:   "The group still reads the topic; stop its members first.",
	kerr.NotEnoughReplicas.Code:        "Fewer replicas are in sync than min.insync.replicas asks for; `tidemark topic describe` shows them.",
	kerr.MessageTooLarge.Code:          "Raise max.message.bytes with `tidemark config alter topic`.",
	kerr.TopicDeletionDisabled.Code:    "The broker runs with delete.topic.enable=false.",
	kerr.OffsetOutOfRange.Code:         "`tidemark offset list` shows the range.",
	kerr.UnsupportedVersion.Code:       "The broker is too old for this; `tidemark api-versions` shows what it speaks.",
}

// describe is an error of one topic, group or partition in one line; message is the text that came with it.
func describe(err error, message string) string {
	var kafka *kerr.Error
	if !errors.As(err, &kafka) {
		return err.Error()
	}
	if message == "" {
		message = kafka.Description
	}
	return kafka.Message + ": " + message
}

// codeOf is the protocol's code in err, 0 where there is none.
func codeOf(err error) int16 {
	if kafka, ok := errors.AsType[*kerr.Error](err); ok {
		return kafka.Code
	}
	return 0
}
