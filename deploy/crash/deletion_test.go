package crash

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/tidemark-io/tidemark/tier/object/s3proxy"
	"github.com/tidemark-io/tidemark/tier/object/s3test"
)

// client speaks to the bucket's server itself, as anybody's program does.
func (b *bucket) client(t testing.TB) *minio.Client {
	t.Helper()
	endpoint, err := url.Parse(b.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client, err := minio.New(endpoint.Host, &minio.Options{Creds: credentials.NewEnvAWS(), Region: s3test.Region})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// folders are where the bucket has objects of topics of a name: one each topic id.
func (b *bucket) folders(t testing.TB, topic string) map[string]int {
	t.Helper()
	folders := map[string]int{}
	const root = "tidemark/topics/"
	for object := range b.client(t).ListObjects(t.Context(), b.name, minio.ListObjectsOptions{Prefix: root + topic + ".", Recursive: true}) {
		if object.Err != nil {
			t.Fatal(object.Err)
		}
		folder, _, _ := strings.Cut(strings.TrimPrefix(object.Key, root), "/")
		folders[folder]++
	}
	return folders
}

// A topic that is deleted leaves the bucket, later if the store was away or the broker was killed in between; one of the same name that
// comes at once is another, and stays.
func TestADeletedTopicLeavesTheBucket(t *testing.T) {
	const topic, partitions, size = "again", 2, 6_000_000
	store := newBucket(t, s3test.MinIO, "minio")
	b := newBroker(t, tiered...)
	b.Store = store.url
	b.start()
	data := func(r s3proxy.Request) bool { return strings.Contains(r.Path+r.Query.Get("prefix"), "/topics/") }
	for _, c := range []struct {
		name   string
		fault  func(s3proxy.Request) s3proxy.Fault
		kill   bool
		answer bool // the deletion is committed all the same
	}{
		{name: "at once", answer: true},
		{name: "objects are not deleted", answer: true, fault: func(r s3proxy.Request) s3proxy.Fault {
			return s3proxy.Fault{Reset: r.Method == http.MethodDelete || r.Method == http.MethodPost && r.Query.Has("delete")}
		}},
		{name: "data is out of reach", answer: true, kill: true, fault: func(r s3proxy.Request) s3proxy.Fault { return s3proxy.Fault{Reset: data(r)} }},
		{name: "the store is away", fault: faults["gone"]},
		{name: "the store is away, and the broker is killed", fault: faults["gone"], kill: true},
	} {
		b.create(topic, partitions)
		b.write(topic, partitions, size)
		b.settles()
		before := store.folders(t, topic)
		if len(before) != 1 {
			t.Fatalf("%s: the bucket has %v", c.name, before)
		}
		store.proxy.Set(c.fault)
		begun := time.Now()
		err := b.remove(topic)
		t.Logf("%s: the answer to the deletion is %v after %v", c.name, err, time.Since(begun))
		if c.answer != (err == nil) {
			t.Errorf("%s: the answer to the deletion is %v", c.name, err)
		}
		if c.kill {
			b.Kill()
		}
		if !c.answer {
			store.proxy.Set(nil)
		}
		if c.kill {
			b.start()
		}
		eventually(t, "the topic is deleted", func() bool { return !b.has(topic) || b.remove(topic) == nil })
		b.create(topic, partitions)
		anew := b.write(topic, partitions, size)
		store.proxy.Set(nil)
		b.settles()
		begun = time.Now()
		eventually(t, c.name+": the bucket has nothing of the topic that was deleted, but of the one that came", func() bool {
			now := store.folders(t, topic)
			for folder := range before {
				if now[folder] > 0 {
					return false
				}
			}
			return len(now) == 1
		})
		anew.compare(anew.consume(b))
		if err := b.remove(topic); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		eventually(t, c.name+": the bucket has nothing of the topic", func() bool { return len(store.folders(t, topic)) == 0 })
		t.Logf("%s: gone %v later", c.name, time.Since(begun))
	}
	b.stop()
	store.fsck(t, "all")
}

// remove deletes a topic.
func (b *broker) remove(topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c := b.client()
	defer c.Close()
	_, err := kadm.NewClient(c).DeleteTopic(ctx, topic)
	return err
}

// has tells whether there is a topic.
func (b *broker) has(topic string) bool {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := b.client()
	defer c.Close()
	topics, err := kadm.NewClient(c).ListTopics(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	return topics.Has(topic)
}
