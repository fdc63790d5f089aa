package main

import (
	"bufio"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tidemark-io/tidemark/tier/chain"
	"github.com/tidemark-io/tidemark/tier/object/cluster"
)

func metadataCommand(a *app) *cobra.Command {
	var url string
	c := parent("metadata", "Read the cluster's metadata in its object store", metadataCatCommand(a, &url), metadataImageCommand(a, &url))
	c.PersistentFlags().StringVar(&url, "store", "", "URL of the object store (store.url)")
	c.MarkPersistentFlagRequired("store") //nolint:errcheck // the flag exists: it is defined above
	return c
}

// metadataLine is a record of the log, with the entry that it was committed in.
type metadataLine struct {
	Offset      int64           `json:"offset"`
	Entry       int64           `json:"entry"`
	Epoch       int64           `json:"epoch"` // of the controller
	Broker      int32           `json:"broker"`
	Incarnation string          `json:"incarnation"`
	CreatedMs   int64           `json:"createdMs"`
	Record      json.RawMessage `json:"record"`
}

func metadataCatCommand(a *app, url *string) *cobra.Command {
	var from int64
	c := &cobra.Command{
		Use:   "cat",
		Short: "Print the metadata log, a line of JSON for each record",
		Long: "Print the metadata log, a line of JSON for each record.\n\n" +
			"Each entry is checked as a broker checks it: its checksum, and that it follows the one before. The log begins after what " +
			"was trimmed behind a snapshot.",
		Example: "  tidemark metadata cat --store file:///var/lib/tidemark/store | jq -c .record",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, ctx, err := a.openCluster(cmd, *url)
			if err != nil {
				return err
			}
			return buffered(cmd, func(out *bufio.Writer) error {
				lines := json.NewEncoder(out)
				lines.SetEscapeHTML(false)
				for entry, err := range chain.Read(ctx, store, cluster.MetadataPrefix, from) {
					if err != nil {
						return err
					}
					for i, record := range entry.Records {
						line := metadataLine{
							Offset: entry.FirstRecord + int64(i), Entry: entry.Number, Epoch: entry.Epoch, Broker: entry.Writer.Broker,
							Incarnation: entry.Writer.Incarnation, CreatedMs: entry.CreatedMs, Record: record,
						}
						if err := lines.Encode(line); err != nil {
							return err
						}
					}
				}
				return nil
			})
		},
	}
	c.Flags().Int64Var(&from, "from", 1, "number of the first entry")
	return c
}

func metadataImageCommand(a *app, url *string) *cobra.Command {
	return &cobra.Command{
		Use:     "image",
		Short:   "Print the state that the metadata log leads to, as its snapshots hold it",
		Example: "  tidemark metadata image --store file:///var/lib/tidemark/store | jq .records[]",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, _, err := a.openBucket(cmd, *url)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", b.image.Snapshot())
			return err
		},
	}
}
