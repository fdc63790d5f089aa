package bucket

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/tier/object"
)

// caBundle is where both SDKs' users name the certificates of a private authority.
const caBundle = "AWS_CA_BUNDLE"

const readBufferBytes = 64 << 10

// Connections carry a client's requests and note the store's clock.
type Connections struct {
	transport *http.Transport
	seen      atomic.Pointer[object.Skew]
}

// Connect prepares connections. caFile holds certificates that are trusted beside the system's; without it the
// environment's AWS_CA_BUNDLE does.
func Connect(caFile string) (*Connections, error) {
	if caFile == "" {
		caFile = os.Getenv(caBundle)
	}
	var config *tls.Config
	if caFile != "" {
		roots, err := x509.SystemCertPool()
		if err != nil {
			return nil, fmt.Errorf("read the system's certificates: %w", err)
		}
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("read certificates: %w", err)
		}
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("no certificate in %s", caFile)
		}
		config = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	return &Connections{transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSClientConfig:     config,
		TLSHandshakeTimeout: 5 * time.Second,
		// An answer that does not even begin: package guard has shorter deadlines, commands have none. The longest is for completing
		// an upload, of 128 parts for a segment of 2 GiB, where a server may say nothing before it is done.
		ResponseHeaderTimeout: 3 * time.Minute,
		ExpectContinueTimeout: time.Second,
		// Idle connections are closed before load balancers and S3 do so by themselves.
		IdleConnTimeout:     15 * time.Second,
		MaxIdleConnsPerHost: 64,
		DisableCompression:  true, // a body that came unpacked would have neither its size nor its range
		// HTTP/1.1 alone: a connection for each transfer beats many of them on one.
		WriteBufferSize: 64 << 10,
		ReadBufferSize:  readBufferBytes,
	}}, nil
}

// Transport is for requests without a note of the clock, such as those for credentials.
func (c *Connections) Transport() http.RoundTripper { return c.transport }

// RoundTrip implements http.RoundTripper.
func (c *Connections) RoundTrip(r *http.Request) (*http.Response, error) {
	var conn net.Conn
	answer, err := c.transport.RoundTrip(onConn(fromFile(r), &conn))
	if err != nil {
		return nil, err
	}
	if r.Method == http.MethodGet { // the answer to a head tells the length of what does not come
		answer.Body = inBulk(answer.Body, conn, answer.ContentLength)
	}
	if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		now := time.Now()
		c.seen.Store(&object.Skew{Ahead: date.Sub(now), At: now})
	}
	return answer, nil
}

func (c *Connections) skew() (object.Skew, bool) {
	if seen := c.seen.Load(); seen != nil {
		return *seen, true
	}
	return object.Skew{}, false
}
