package main

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A record may be on its way when the broker goes: that one ends too, whatever has become of it.
func TestProduceEndsWhenTheBrokerGoesWithARecord(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveUntilProduce(conn, listener)
		}
	}()
	got := tidemark(t, nil, "x\n", "produce", "t", "--timeout", "1s", "--bootstrap", listener.Addr().String())
	if got.status != 1 || !strings.Contains(got.stderr, "No answer from "+listener.Addr().String()) {
		t.Errorf("status %d, %s", got.status, got.stderr)
	}
}

func TestProduceCreatesATopicWhereTheClusterDoes(t *testing.T) {
	for setting, want := range map[string]int{"true": 0, "false": 1} {
		b, _ := inProcess(t, t.TempDir(), "auto.create.topics.enable="+setting)
		s := session{t, b.Addresses()[0]}
		for _, line := range []string{"produce greetings", "bench produce load -n 1"} {
			got := s.run("hello\n", line)
			if got.status != want || want != 0 && !strings.Contains(got.stderr, "UNKNOWN_TOPIC_OR_PARTITION") {
				t.Errorf("auto.create.topics.enable=%s, %s: status %d, %s", setting, line, got.status, got.stderr)
			}
		}
		closeBroker(t, b)
	}
}

func TestProduceIsInterruptedWhileItWaitsForALine(t *testing.T) {
	address, _ := testBroker(t)
	s := session{t, address}
	s.ok("", "topic create t")
	stdin, typed := io.Pipe()
	defer typed.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ended := make(chan result, 1)
	go func() {
		ended <- tidemarkIn(ctx, map[string]string{"TIDEMARK_BOOTSTRAP": address}, stdin, "produce", "t")
	}()
	if _, err := io.WriteString(typed, "a\n"); err != nil {
		t.Fatal(err)
	}
	s.ok("", "consume t -n 1")
	interrupt()
	select {
	case got := <-ended:
		if got.status != 1 || !strings.Contains(got.stderr, "acknowledged record") {
			t.Errorf("status %d, %s", got.status, got.stderr)
		}
	case <-time.After(20 * time.Second):
		t.Error("it waits for the next line")
	}
}

// serveUntilProduce answers as a broker that has topic t; with the first Produce it is gone.
func serveUntilProduce(conn net.Conn, listener net.Listener) {
	defer conn.Close()
	for {
		head := make([]byte, 14)
		if _, err := io.ReadFull(conn, head); err != nil {
			return
		}
		rest := make([]byte, int(binary.BigEndian.Uint32(head))-10)
		if _, err := io.ReadFull(conn, rest); err != nil {
			return
		}
		request := kmsg.RequestForKey(int16(binary.BigEndian.Uint16(head[4:])))
		request.SetVersion(int16(binary.BigEndian.Uint16(head[6:])))
		response := request.ResponseKind()
		switch r := response.(type) {
		case *kmsg.ApiVersionsResponse:
			for _, api := range []kmsg.Request{&kmsg.ProduceRequest{Version: 8}, &kmsg.MetadataRequest{Version: 8}, &kmsg.InitProducerIDRequest{Version: 1}, &kmsg.ApiVersionsRequest{Version: 3}} {
				r.ApiKeys = append(r.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: api.Key(), MaxVersion: api.GetVersion()})
			}
		case *kmsg.MetadataResponse:
			address := listener.Addr().(*net.TCPAddr)
			r.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 1, Host: address.IP.String(), Port: int32(address.Port)}}
			r.Topics = []kmsg.MetadataResponseTopic{{Topic: kmsg.StringPtr("t"), Partitions: []kmsg.MetadataResponseTopicPartition{{Leader: 1}}}}
		case *kmsg.InitProducerIDResponse:
			r.ProducerID = 7
		case *kmsg.ProduceResponse:
			listener.Close()
			return
		}
		answer := append(make([]byte, 4, 256), head[8:12]...)
		answer = response.AppendTo(answer)
		binary.BigEndian.PutUint32(answer, uint32(len(answer)-4))
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}
