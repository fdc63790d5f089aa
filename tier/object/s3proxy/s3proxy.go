// Package s3proxy stands between a client and an S3 server in a test and does what networks and stores do on bad days: answers
// lost after the commit, connections reset, requests that hang, that are refused, slowed down, cut off, delivered twice,
// or stripped of their conditions.
//
// A test says at any time what is going to happen, by a function that is asked for each request. The proxy signs what it sends
// on anew, since a condition is part of a signature, by the credentials in the environment.
package s3proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// Fault is what happens to a request. The zero Fault passes it on.
type Fault struct {
	Delay   time.Duration // before anything else
	Refuse  int           // answer with this status and S3's code for it: the server never hears of the request
	Reset   bool          // break the connection: the server never hears of the request
	Hang    bool          // never answer: the server never hears of the request
	CutBody int64         // pass on so many bytes of the request's body, then break both connections
	Twice   bool          // deliver the request twice, answer with what came second
	Strip   bool          // pass it on without its conditions
	Lose    bool          // pass it on, then break the connection in place of an answer
	Stall   bool          // pass it on, then never answer
	CutBack int64         // answer with so many bytes of the body, then break the connection
}

// Request is what a test decides upon.
type Request struct {
	Seq    int    // counts from 1 on
	Method string // GET, HEAD, PUT, POST, DELETE
	Path   string // /bucket/key
	Query  url.Values
	Header http.Header
}

// Conditional tells whether the request is a put that depends on what is there.
func (r Request) Conditional() bool {
	return r.Header.Get("If-None-Match") != "" || r.Header.Get("If-Match") != ""
}

// Proxy is a server in front of another.
type Proxy struct {
	URL string

	target string
	server *httptest.Server
	client *http.Client
	done   chan struct{}
	seq    atomic.Int64

	mu     sync.Mutex // guards decide
	decide func(Request) Fault
}

// Start starts a proxy before the server at target, http://host:port, which ends with the test.
func Start(t testing.TB, target string) *Proxy {
	t.Helper()
	p := &Proxy{
		target: target, done: make(chan struct{}),
		client: &http.Client{
			Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	p.server = httptest.NewServer(http.HandlerFunc(p.serve))
	p.URL = p.server.URL
	t.Cleanup(func() {
		close(p.done)
		p.server.CloseClientConnections()
		p.server.Close()
		p.client.CloseIdleConnections()
	})
	return p
}

// Set says what happens to requests from now on; nil: nothing. decide is called by the goroutine of each request.
func (p *Proxy) Set(decide func(Request) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decide = decide
}

// Requests is how many requests have come.
func (p *Proxy) Requests() int { return int(p.seq.Load()) }

func (p *Proxy) fault(r *http.Request) Fault {
	request := Request{Seq: int(p.seq.Add(1)), Method: r.Method, Path: r.URL.Path, Query: r.URL.Query(), Header: r.Header}
	p.mu.Lock()
	decide := p.decide
	p.mu.Unlock()
	if decide == nil {
		return Fault{}
	}
	return decide(request)
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	f := p.fault(r)
	if f.Delay > 0 && !p.wait(r.Context(), f.Delay) {
		return
	}
	switch {
	case f.Refuse != 0:
		refuse(w, f.Refuse)
		return
	case f.Reset:
		breakOff()
	case f.Hang:
		p.hang(r)
		return
	}

	var body io.Reader = r.Body
	if f.Twice {
		whole, err := io.ReadAll(r.Body)
		if err != nil {
			breakOff()
		}
		answer, err := p.forward(r, bytes.NewReader(whole), f)
		if err != nil {
			breakOff()
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		body = bytes.NewReader(whole)
	}
	if f.CutBody > 0 {
		body = &cut{r.Body, f.CutBody}
	}
	answer, err := p.forward(r, body, f)
	if err != nil {
		breakOff()
	}
	defer answer.Body.Close()
	switch {
	case f.Lose:
		_, _ = io.Copy(io.Discard, answer.Body)
		breakOff()
	case f.Stall:
		_, _ = io.Copy(io.Discard, answer.Body)
		p.hang(r)
		return
	}
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.StatusCode)
	if f.CutBack > 0 {
		_, _ = io.CopyN(w, answer.Body, f.CutBack)
		_ = http.NewResponseController(w).Flush() // what was sent so far arrives
		breakOff()
	}
	if _, err := io.Copy(w, answer.Body); err != nil {
		breakOff()
	}
}

// breakOff closes the connection of the request that is being served, as net/http documents it.
func breakOff() { panic(http.ErrAbortHandler) }

// wait returns after d, false if the client or the test is gone before.
func (p *Proxy) wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-p.done:
	}
	return false
}

// hang keeps the connection open and silent until the client or the test is gone.
func (p *Proxy) hang(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // as a server in trouble would; and net/http notices a client that leaves only then
	select {
	case <-r.Context().Done():
	case <-p.done:
	}
	breakOff()
}

// forward sends the request to the server. It is not the client's context that it hangs on: what a client has given up may
// be carried out all the same.
func (p *Proxy) forward(r *http.Request, body io.Reader, f Fault) (*http.Response, error) {
	if r.ContentLength == 0 {
		body = http.NoBody
	}
	out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, p.target+r.URL.RequestURI(), body)
	if err != nil {
		return nil, err
	}
	out.ContentLength = r.ContentLength
	out.Host = r.Host
	for name, values := range r.Header {
		switch name {
		case "Authorization", "Connection", "Expect", "Accept-Encoding":
			continue // of the first signature, or of the first connection
		case "If-Match", "If-None-Match":
			if f.Strip {
				continue
			}
		}
		out.Header[name] = values
	}
	out.Header["Accept-Encoding"] = []string{"identity"}
	if r.Header.Get("Authorization") != "" {
		if err := sign(out); err != nil {
			return nil, err
		}
	}
	return p.client.Do(out)
}

func sign(r *http.Request) error {
	keys := aws.Credentials{AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY")}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	hash := r.Header.Get("X-Amz-Content-Sha256")
	return signer.SignHTTP(r.Context(), keys, r, hash, "s3", os.Getenv("AWS_REGION"), time.Now())
}

var codes = map[int]string{
	http.StatusConflict: "ConditionalRequestConflict", http.StatusPreconditionFailed: "PreconditionFailed",
	http.StatusTooManyRequests: "TooManyRequests", http.StatusServiceUnavailable: "SlowDown",
	http.StatusInternalServerError: "InternalError", http.StatusForbidden: "AccessDenied", http.StatusNotFound: "NoSuchBucket",
}

func refuse(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>made up</Message></Error>`, codes[status])
}

// cut is a body that breaks off.
type cut struct {
	io.Reader
	left int64
}

func (c *cut) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.Reader.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}
