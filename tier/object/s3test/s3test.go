// Package s3test starts real S3 servers for tests: on a free port, over a folder of the test's, stopped at its end.
//
// The programs are those that scripts/minio and scripts/versitygw install into ${TIDEMARK_CACHE:-~/.cache/tidemark}. Where one is
// missing a test is skipped, and says so; with TIDEMARK_NEED_S3 in the environment, as under make test, it fails. If
// TIDEMARK_TEST_S3 names a running server, as scripts/minio start prints it, that one is used in place of both.
package s3test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/tidemark-io/tidemark/deploy/process"
)

// Kind is a program that speaks S3.
type Kind string

// The servers that every store over S3 is tested on.
const (
	MinIO   Kind = "minio"
	Versity Kind = "versitygw"
)

// Kinds are all of them.
var Kinds = []Kind{MinIO, Versity}

// Server is one that runs.
type Server struct {
	URL    string // http://127.0.0.1:port, or https://
	CAFile string // of the authority that its certificate is from, empty without TLS

	kind    Kind
	folder  string
	command func() *exec.Cmd
	process *exec.Cmd
}

// What every server is started with; Start puts it into the environment, where both SDKs look for it.
const (
	AccessKey = "tidemark"
	SecretKey = "tidemark-secret"
	Region    = "us-east-1"
)

// Start starts a server and waits until it answers.
func Start(t testing.TB, kind Kind) *Server {
	t.Helper()
	return start(t, kind, t.TempDir(), freeAddress(t), false)
}

// StartAt starts a server with its data in a folder, by a command of the caller's, which runs the rest of its arguments somewhere else: at an
// address that is free there.
func StartAt(t testing.TB, kind Kind, folder, address string, by ...string) *Server {
	t.Helper()
	return start(t, kind, folder, address, false, by...)
}

// StartTLS starts a server whose certificate comes from an authority that nobody else knows.
func StartTLS(t testing.TB, kind Kind) *Server {
	t.Helper()
	return start(t, kind, t.TempDir(), freeAddress(t), true)
}

func start(t testing.TB, kind Kind, folder, address string, encrypted bool, by ...string) *Server {
	t.Helper()
	if running := os.Getenv("TIDEMARK_TEST_S3"); running != "" && !encrypted {
		return &Server{URL: running, CAFile: os.Getenv("AWS_CA_BUNDLE")}
	}
	program := find(t, kind)
	t.Setenv("AWS_ACCESS_KEY_ID", AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", SecretKey)
	t.Setenv("AWS_REGION", Region)
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)

	s := &Server{URL: "http://" + address, kind: kind, folder: folder}
	certs := filepath.Join(s.folder, "certs")
	if encrypted {
		s.URL = "https://" + address
		s.CAFile = writeCertificates(t, certs)
	}
	data := filepath.Join(s.folder, "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	s.command = func() *exec.Cmd { return command(ctx, append(by, program), kind, address, data, certs, encrypted) }
	t.Cleanup(s.Kill)
	s.Restart(t)
	return s
}

// Restart starts a server that was killed again, where it was, over what it had, and waits until it answers.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	output, err := os.OpenFile(filepath.Join(s.folder, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	s.process = s.command()
	s.process.Stdout, s.process.Stderr = output, output
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	s.await(t)
}

// Kill is kill -9. The folder stays until the test ends.
func (s *Server) Kill() {
	_ = s.process.Process.Kill() // an error says that it has ended
	_ = s.process.Wait()
}

// Pause leaves the server's connections open and everything unanswered, until Resume.
func (s *Server) Pause(t testing.TB) { s.signal(t, syscall.SIGSTOP) }

// Resume undoes Pause.
func (s *Server) Resume(t testing.TB) { s.signal(t, syscall.SIGCONT) }

func (s *Server) signal(t testing.TB, what os.Signal) {
	t.Helper()
	if s.process == nil {
		t.Skip("the server is not this test's")
	}
	if err := s.process.Process.Signal(what); err != nil {
		t.Fatal(err)
	}
}

// find is where the program is installed.
func find(t testing.TB, kind Kind) string {
	t.Helper()
	cache := os.Getenv("TIDEMARK_CACHE")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(home, ".cache", "tidemark")
	}
	program := filepath.Join(cache, "bin", string(kind))
	if _, err := os.Stat(program); err != nil {
		const format = "NOT TESTED on %s, which is not installed: run scripts/%s install, or make test"
		if os.Getenv("TIDEMARK_NEED_S3") != "" {
			t.Fatalf(format, kind, kind)
		}
		t.Skipf(format, kind, kind)
	}
	return program
}

func command(ctx context.Context, program []string, kind Kind, address, data, certs string, encrypted bool) *exec.Cmd {
	var arguments []string
	switch kind {
	case MinIO:
		arguments = []string{"server", "--quiet", "--address", address}
		if encrypted {
			arguments = append(arguments, "--certs-dir", certs)
		}
		arguments = append(arguments, data)
	case Versity:
		arguments = []string{"--port", address, "--quiet", "--keep-alive"}
		if encrypted {
			arguments = append(arguments, "--cert", filepath.Join(certs, "public.crt"), "--key", filepath.Join(certs, "private.key"))
		}
		arguments = append(arguments, "posix", data)
	}
	arguments = append(program[1:len(program):len(program)], arguments...)
	c := exec.CommandContext(ctx, program[0], arguments...)
	c.SysProcAttr = dieWithParent()
	c.Env = append(os.Environ(),
		"MINIO_ROOT_USER="+AccessKey, "MINIO_ROOT_PASSWORD="+SecretKey, "MINIO_BROWSER=off", "MINIO_UPDATE=off", "MINIO_CI_CD=1",
		"ROOT_ACCESS_KEY="+AccessKey, "ROOT_SECRET_KEY="+SecretKey)
	return c
}

func freeAddress(t testing.TB) string {
	t.Helper()
	address, err := process.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// startTime is how long a server may take: MinIO takes two seconds, and more on a machine with other work.
const startTime = time.Minute

// await waits until the server answers: an unsigned request is refused, which is enough.
func (s *Server) await(t testing.TB) {
	t.Helper()
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
	}}
	for end := time.Now().Add(startTime); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			continue
		}
		answer.Body.Close()
		// MinIO answers 503 until it has read its disks.
		if answer.StatusCode != http.StatusServiceUnavailable {
			return
		}
	}
	output, _ := os.ReadFile(filepath.Join(s.folder, "log"))
	t.Fatalf("%s does not answer at %s:\n%s", s.kind, s.URL, output)
}

// Bucket makes a bucket with a name of its own.
func (s *Server) Bucket(t testing.TB) string {
	t.Helper()
	name := "test-" + strings.ToLower(rand.Text())
	client := s.client(t)
	if err := client.MakeBucket(t.Context(), name, minio.MakeBucketOptions{}); err != nil {
		t.Fatalf("make bucket: %v", err)
	}
	return name
}

// Uploads are the keys of the uploads of one object that nobody has completed or given up.
func (s *Server) Uploads(t testing.TB, bucket, key string) []string {
	t.Helper()
	core := minio.Core{Client: s.client(t)}
	list, err := core.ListMultipartUploads(context.Background(), bucket, key, "", "", "", 0)
	if err != nil {
		t.Fatalf("list uploads: %v", err)
	}
	var keys []string
	for _, u := range list.Uploads {
		keys = append(keys, u.Key)
	}
	return keys
}

func (s *Server) client(t testing.TB) *minio.Client {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	client, err := minio.New(u.Host, &minio.Options{
		Creds: credentials.NewEnvAWS(), Secure: u.Scheme == "https", Region: Region, BucketLookup: minio.BucketLookupPath,
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// StoreURL is the URL of a store in a bucket, by the scheme s3 or minio.
func (s *Server) StoreURL(scheme, bucket, prefix string) string {
	return URL(s.URL, s.CAFile, scheme, bucket, prefix)
}

// URL is the same for whatever stands between: a proxy at endpoint.
func URL(endpoint, caFile, scheme, bucket, prefix string) string {
	q := url.Values{}
	if caFile != "" {
		q.Set("ca", caFile)
	}
	protocol, host, _ := strings.Cut(endpoint, "://")
	var u string
	if scheme == "minio" {
		q.Set("tls", fmt.Sprint(protocol == "https"))
		u = "minio://" + host + "/" + bucket
	} else {
		q.Set("endpoint", endpoint)
		u = "s3://" + bucket
	}
	return u + "/" + prefix + "?" + q.Encode()
}

// writeCertificates writes public.crt and private.key into a folder, and the authority's certificate, whose file it returns.
func writeCertificates(t testing.TB, folder string) string {
	t.Helper()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "an authority of the test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	authorityKey, serverKey := newKey(t), newKey(t)
	caFile := filepath.Join(folder, "authority.crt")
	writePEM(t, caFile, "CERTIFICATE", sign(t, authority, authority, authorityKey, authorityKey))
	writePEM(t, filepath.Join(folder, "public.crt"), "CERTIFICATE", sign(t, server, authority, serverKey, authorityKey))
	private, err := x509.MarshalECPrivateKey(serverKey)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, filepath.Join(folder, "private.key"), "EC PRIVATE KEY", private)
	return caFile
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t testing.TB, c, by *x509.Certificate, key, byKey *ecdsa.PrivateKey) []byte {
	t.Helper()
	signed, err := x509.CreateCertificate(rand.Reader, c, by, &key.PublicKey, byKey)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func writePEM(t testing.TB, name, kind string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
		t.Fatal(err)
	}
}
