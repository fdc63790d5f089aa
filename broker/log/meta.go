package log

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/broker/wire"
)

const metaFile = "meta.properties"

// Meta is meta.properties: whose log directory it is. The format is Kafka's, version 1, with a key of our own for the cluster
// incarnation.
type Meta struct {
	ClusterID          string
	ClusterIncarnation int64
	BrokerID           wire.BrokerID
	DirectoryID        wire.TopicID
}

// ErrMeta says that meta.properties is damaged, or of a version that is not known: whose the directory is cannot be told.
var ErrMeta = errors.New("meta.properties is damaged")

// ReadMeta reads meta.properties of a log directory; ok is false where there is none.
func ReadMeta(fsys vfs.FS, dir string) (meta Meta, ok bool, err error) {
	data, err := readFile(fsys, path.Join(dir, metaFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Meta{}, false, nil
	}
	if err != nil {
		return Meta{}, false, err
	}
	if meta, err = ParseMeta(data); err != nil {
		return Meta{}, false, fmt.Errorf("%s: %w", dir, err)
	}
	return meta, true, nil
}

// ParseMeta reads the content of meta.properties. broker.id is taken for node.id where that is missing; unknown keys are
// passed over.
func ParseMeta(data []byte) (Meta, error) {
	values := map[string]string{}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return Meta{}, fmt.Errorf("%w: line %q", ErrMeta, line)
		}
		values[strings.TrimSpace(key)] = strings.ReplaceAll(strings.TrimSpace(value), `\`, "")
	}
	if values["version"] != "1" {
		return Meta{}, fmt.Errorf("%w: version %q", ErrMeta, values["version"])
	}
	node, ok := values["node.id"]
	if !ok {
		node = values["broker.id"]
	}
	id, err := strconv.ParseInt(node, 10, 32)
	if err != nil || id < 0 {
		return Meta{}, fmt.Errorf("%w: node.id %q", ErrMeta, node)
	}
	meta := Meta{ClusterID: values["cluster.id"], BrokerID: wire.BrokerID(id)}
	if meta.ClusterID == "" {
		return Meta{}, fmt.Errorf("%w: no cluster.id", ErrMeta)
	}
	if meta.DirectoryID, err = wire.ParseTopicID(values["directory.id"]); err != nil {
		return Meta{}, fmt.Errorf("%w: directory.id: %w", ErrMeta, err)
	}
	if incarnation := values["cluster.incarnation"]; incarnation != "" {
		if meta.ClusterIncarnation, err = strconv.ParseInt(incarnation, 10, 64); err != nil {
			return Meta{}, fmt.Errorf("%w: cluster.incarnation %q", ErrMeta, incarnation)
		}
	}
	return meta, nil
}

func (m Meta) format() []byte {
	return fmt.Appendf(nil, "version=1\nnode.id=%d\ncluster.id=%s\ndirectory.id=%s\ncluster.incarnation=%d\n",
		m.BrokerID, m.ClusterID, m.DirectoryID, m.ClusterIncarnation)
}
