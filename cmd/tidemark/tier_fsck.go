package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-io/tidemark/broker/config"
	"github.com/tidemark-io/tidemark/broker/engine"
	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/vfs"
	"github.com/tidemark-io/tidemark/tier/fsck"
)

// fsckFlags are those of fsck and verify.
type fsckFlags struct {
	level  string
	sample int
	grace  time.Duration
	repair bool
	only   string
}

func (f *fsckFlags) add(c *cobra.Command) {
	c.Flags().DurationVar(&f.grace, "grace", 7*24*time.Hour, "the cluster's tier.delete.grace.ms, and no less than an hour: what is younger is nobody's orphan")
	c.Flags().StringVar(&f.only, "only", "", "TOPIC or TOPIC/PARTITION to check, in place of all")
}

const fsckExits = "\n\nThe exit status is 0 where all is well or was repaired, 1 with findings, and 2 when the check could not be made."

func tierFsckCommand(a *app, url *string) *cobra.Command {
	var f fsckFlags
	c := &cobra.Command{
		Use:   "fsck",
		Short: "Check what lies in the bucket against what the manifests say",
		Long: "Check what lies in the bucket against what the manifests say. Brokers may be at work meanwhile.\n\n" +
			"The levels, by what they cost: list reads the manifests and lists the bucket; aux reads every sidecar, too; sample reads " +
			"--sample per cent of the segments whole, all reads all of them; verify looks into each batch.\n\n" +
			"--repair deletes objects that nobody names nor ever will and that are older than the grace, gives up uploads that were never " +
			"completed, and puts a lost sidecar back where it can be made equal to the byte. It never overwrites an object and never " +
			"writes to a manifest." + fsckExits,
		Example: "  tidemark tier fsck --store file:///var/lib/tidemark/store\n  tidemark tier fsck --level sample --sample 5 --store minio://host:9000/bucket",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.fsck(cmd, *url, f) },
	}
	f.add(c)
	c.Flags().StringVar(&f.level, "level", "list", "how much is read: list, aux, sample, all or verify")
	c.Flags().IntVar(&f.sample, "sample", 5, "per cent of the segments to read at level sample, 1 to 100")
	c.Flags().BoolVar(&f.repair, "repair", false, "repair what can lose nothing")
	return c
}

func tierVerifyCommand(a *app, url *string) *cobra.Command {
	f := fsckFlags{level: "verify", sample: 100}
	c := &cobra.Command{
		Use:   "verify",
		Short: "Read all that lies in the bucket, and check every batch of it",
		Long: "Read all that lies in the bucket, and check every batch of it: checksums, the order of offsets, leader epochs, how many " +
			"records there are, and that the indexes point at batches. It is fsck --level verify." + fsckExits,
		Example: "  tidemark tier verify --only orders --store file:///var/lib/tidemark/store",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.fsck(cmd, *url, f) },
	}
	f.add(c)
	return c
}

func (a *app) fsck(cmd *cobra.Command, url string, f fsckFlags) error {
	level, err := fsck.ParseLevel(f.level)
	switch {
	case err != nil:
		return unusable{err}
	case f.grace < fsck.MinGrace:
		return mistake("--grace %s is too short: an upload may take that long, and what is younger than %s is never deleted", f.grace, fsck.MinGrace)
	case f.sample < 1 || f.sample > 100:
		return mistake("--sample %d is not 1 to 100 per cent", f.sample)
	}
	settings, err := defaultSettings()
	if err != nil {
		return err
	}
	store, err := openStore(cmd.Context(), url, a.timeout)
	if err != nil {
		return err
	}
	var image *metadata.Image // as it was read last
	o := fsck.Options{
		Store: store, Level: level, SamplePercent: f.sample, Seed: rand.Uint64(), Grace: f.grace, Repair: f.repair,
		Metadata: func(ctx context.Context) ([]fsck.Topic, error) {
			read, err := engine.ReadImage(ctx, store)
			if err != nil {
				return nil, err
			}
			image = read
			return fsckTopics(settings, image), nil
		},
	}
	only := partitionRef{partition: -1}
	if f.only != "" {
		if only, err = parsePartitionRef(f.only); err != nil {
			return err
		}
		o.Only = only.holds
	}
	if f.repair {
		space, remove, err := scratch(func() *metadata.Image { return image })
		if err != nil {
			return err
		}
		defer remove()
		o.Scratch = space
	}
	report := &fsckReport{out: cmd.OutOrStdout(), quiet: a.json, Findings: []fsck.Finding{}}
	report.Summary, err = fsck.Check(cmd.Context(), a.now(), o, report.add)
	switch {
	case errors.Is(err, fsck.ErrNoCluster):
		return unusable{fmt.Errorf("%s: %w", url, err)}
	case err != nil:
		return unusable{err}
	}
	if report.Summary.Partitions == 0 && image != nil { // what the bucket has needs no metadata to be checked
		if _, err := (&bucket{store, image}).partitions(only); err != nil {
			return err
		}
	}
	if err := a.print(cmd, report); err != nil {
		return err
	}
	if report.Summary.Findings > report.Summary.Repaired {
		return errReported
	}
	return nil
}

// scratch makes a folder in which sidecars are made anew, as the topics' settings want them, and returns what removes it. image may
// return nil: settings that are not known have their defaults.
func scratch(image func() *metadata.Image) (s fsck.Scratch, remove func(), err error) {
	settings, err := defaultSettings()
	if err != nil {
		return s, nil, err
	}
	dir, err := os.MkdirTemp("", "tidemark-fsck-")
	if err != nil {
		return s, nil, err
	}
	s = fsck.Scratch{FS: vfs.OS{}, Dir: dir, Config: func(topic string) config.Topic { return topicSettings(settings, image(), topic) }}
	return s, func() { os.RemoveAll(dir) }, nil
}

// defaultSettings are those of a broker that nobody has configured.
func defaultSettings() (*config.Broker, error) {
	settings, _, err := config.Parse([]config.Source{{Format: config.Flags, Pairs: []string{
		"node.id=1", "log.dirs=/", "store.url=mem://", "tier.enable=true",
	}}})
	return settings, err
}

// topicSettings are a topic's, as far as the metadata knows them.
func topicSettings(b *config.Broker, image *metadata.Image, topic string) config.Topic {
	var overrides map[string]string
	if image != nil {
		overrides = image.Configs(metadata.ConfigResource{Type: metadata.TopicResource, Name: topic})
	}
	t, err := config.ResolveTopic(b, overrides)
	if err != nil { // of a newer program: the defaults are the best guess
		t, _ = config.ResolveTopic(b, nil)
	}
	return t
}

// fsckReport is the view of fsck. Findings are written as they come, for people.
type fsckReport struct {
	out      io.Writer
	quiet    bool
	Findings []fsck.Finding `json:"findings"`
	Summary  fsck.Summary   `json:"summary"`
}

// reportedMax bounds the findings that are kept for the JSON.
const reportedMax = 100_000

func (r *fsckReport) add(f fsck.Finding) {
	if r.quiet {
		if len(r.Findings) < reportedMax {
			r.Findings = append(r.Findings, f)
		}
		return
	}
	where := f.Key
	if f.Partition != nil {
		where = fmt.Sprintf("%s/%d", f.Topic, *f.Partition)
		if f.End > f.Start {
			where += fmt.Sprintf(" offsets %d to %d", f.Start, f.End-1)
		}
	}
	fmt.Fprintf(r.out, "%s: %s: %s\n", f.Kind, where, f.Text)
	if f.Partition != nil && f.Key != "" {
		fmt.Fprintf(r.out, "    object: %s\n", f.Key)
	}
	switch {
	case f.Repaired != "":
		fmt.Fprintf(r.out, "    repaired: %s\n", f.Repaired)
	case f.Advice != "":
		fmt.Fprintf(r.out, "    what to do: %s\n", f.Advice)
	}
}

func (r *fsckReport) write(p *page) {
	s := r.Summary
	fmt.Fprintf(p.out, "%d partitions, %d segments with %s", s.Partitions, s.Segments, bytesText(s.Bytes))
	if s.ObjectsRead > 0 {
		fmt.Fprintf(p.out, "; read %d objects with %s", s.ObjectsRead, bytesText(s.BytesRead))
	}
	if s.Batches > 0 {
		fmt.Fprintf(p.out, ", %d batches with %d records", s.Batches, s.Records)
	}
	fmt.Fprintf(p.out, "\n%d uploads wait for their deletion, %d objects are not named yet\n", s.Dropped, s.Pending)
	if s.Absent > 0 {
		fmt.Fprintf(p.out, "%d partitions have nothing in the bucket, which may be right: `tidemark tier status` names them\n", s.Absent)
	}
	switch left := s.Findings - s.Repaired; {
	case s.Findings == 0:
		fmt.Fprintln(p.out, "All is well.")
	case left == 0:
		fmt.Fprintf(p.out, "%d findings, all repaired.\n", s.Findings)
	default:
		fmt.Fprintf(p.out, "%d findings are left, %d of them about records.\n", left, s.DataFindings)
	}
}
