package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// resourceKinds are what can be configured, as people name it.
var resourceKinds = map[string]kmsg.ConfigResourceType{
	"topic":          kmsg.ConfigResourceTypeTopic,
	"broker":         kmsg.ConfigResourceTypeBroker,
	"broker-logger":  kmsg.ConfigResourceTypeBrokerLogger,
	"client-metrics": kmsg.ConfigResourceTypeClientMetrics,
	"group":          kmsg.ConfigResourceTypeGroupConfig,
}

const kindHelp = "KIND is topic, broker, broker-logger, client-metrics or group. A broker without a name stands for all of them."

func configCommand(a *app) *cobra.Command {
	return parent("config", "Show and change settings of topics, brokers and groups", configDescribeCommand(a), configAlterCommand(a), configListCommand(a))
}

// configRow is one setting.
type configRow struct {
	Name      string          `json:"name"`
	Value     *string         `json:"value"`
	Source    string          `json:"source"`
	ReadOnly  bool            `json:"read_only,omitempty"`
	Sensitive bool            `json:"sensitive,omitempty"`
	Type      string          `json:"type,omitempty"`
	Doc       string          `json:"documentation,omitempty"`
	Synonyms  []configSynonym `json:"synonyms,omitempty"`
}

type configSynonym struct {
	Name   string  `json:"name"`
	Value  *string `json:"value"`
	Source string  `json:"source"`
}

// configRows is the view of config describe; wide adds the synonyms.
type configRows struct {
	rows []configRow
	wide bool
}

func (c configRows) MarshalJSON() ([]byte, error) { return marshalRows(c.rows) }

func (c configRows) write(p *page) {
	columns := []string{"SETTING", "VALUE", "SOURCE"}
	if c.wide {
		columns = append(columns, "INSTEAD OF")
	}
	p.heading(columns...)
	for _, r := range c.rows {
		value := cellText(r.Value)
		switch {
		case r.Sensitive:
			value = "(hidden)"
		case r.Value != nil && *r.Value == "":
			value = `""`
		}
		cells := []any{r.Name, value, sourceText(r.Source)}
		if c.wide {
			cells = append(cells, synonymText(r))
		}
		p.row(cells...)
	}
}

// sourceText is a config source in a word, from the most specific on.
func sourceText(source string) string {
	if text, ok := sourceTexts[source]; ok {
		return text
	}
	return source
}

var sourceTexts = map[string]string{
	"DYNAMIC_TOPIC_CONFIG":          "topic",
	"GROUP_CONFIG":                  "group",
	"CLIENT_METRICS_CONFIG":         "client metrics",
	"DYNAMIC_BROKER_LOGGER_CONFIG":  "logger",
	"DYNAMIC_BROKER_CONFIG":         "broker",
	"DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers",
	"STATIC_BROKER_CONFIG":          "file",
	"DEFAULT_CONFIG":                "default",
}

// synonymText lists the values that the effective one overrides.
func synonymText(r configRow) string {
	var texts []string
	for i, s := range r.Synonyms {
		if i > 0 {
			texts = append(texts, fmt.Sprintf("%s=%s (%s)", s.Name, cellText(s.Value), sourceText(s.Source)))
		}
	}
	return strings.Join(texts, ", ")
}

func configDescribeCommand(a *app) *cobra.Command {
	var all, synonyms bool
	var names []string
	c := &cobra.Command{
		Use:     "describe KIND [NAME]",
		Short:   "Show settings, by default those that are not the default",
		Long:    "Show settings, by default those that are not the default.\n\n" + kindHelp,
		Example: "  tidemark config describe topic orders --all\n  tidemark config describe broker 1 --key log.segment.bytes",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			resource, err := parseResource(args)
			if err != nil {
				return err
			}
			return a.client(cmd.Context(), func(ctx context.Context, client *kgo.Client) error {
				rows, err := describeConfigs(ctx, client, resource, names, synonyms)
				if err != nil {
					return err
				}
				if !all && len(names) == 0 {
					rows = slices.DeleteFunc(rows, func(r configRow) bool { return r.Source == "DEFAULT_CONFIG" })
				}
				return a.print(cmd, configRows{rows, synonyms})
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "defaults too")
	c.Flags().BoolVar(&synonyms, "synonyms", false, "the values that are overridden too")
	c.Flags().StringSliceVarP(&names, "key", "k", nil, "only these settings")
	return c
}

// resource is something with settings.
type resource struct {
	kind kmsg.ConfigResourceType
	name string
}

func parseResource(args []string) (resource, error) {
	kind, ok := resourceKinds[args[0]]
	if !ok {
		return resource{}, mistake("%q is not a kind of resource: %s", args[0], kindHelp)
	}
	r := resource{kind: kind}
	if len(args) > 1 {
		r.name = args[1]
	} else if args[0] != "broker" {
		return resource{}, mistake("which %s?", args[0])
	}
	return r, nil
}

func describeConfigs(ctx context.Context, client *kgo.Client, r resource, names []string, synonyms bool) ([]configRow, error) {
	request := kmsg.NewPtrDescribeConfigsRequest()
	request.IncludeSynonyms = synonyms
	request.IncludeDocumentation = true
	one := kmsg.NewDescribeConfigsRequestResource()
	one.ResourceType, one.ResourceName, one.ConfigNames = r.kind, r.name, names
	request.Resources = append(request.Resources, one)
	response, err := client.Request(ctx, request)
	if err != nil {
		return nil, err
	}
	rows := []configRow{}
	for _, answer := range response.(*kmsg.DescribeConfigsResponse).Resources {
		if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
			return nil, answerError(err, answer.ErrorMessage)
		}
		for _, c := range answer.Configs {
			row := configRow{Name: c.Name, Value: c.Value, Source: c.Source.String(), ReadOnly: c.ReadOnly, Sensitive: c.IsSensitive, Type: c.ConfigType.String()}
			if c.Documentation != nil {
				row.Doc = *c.Documentation
			}
			for _, s := range c.ConfigSynonyms {
				row.Synonyms = append(row.Synonyms, configSynonym{s.Name, s.Value, s.Source.String()})
			}
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(x, y configRow) int { return strings.Compare(x.Name, y.Name) })
	return rows, nil
}

// answerError gives the error of an answer the text that came with it.
func answerError(err error, message *string) error {
	if message == nil || *message == "" {
		return err
	}
	return &toldError{err, *message}
}

// toldError is an error of the protocol with the broker's own text.
type toldError struct {
	code error
	text string
}

func (e *toldError) Error() string { return describe(e.code, e.text) }
func (e *toldError) Unwrap() error { return e.code }

func configAlterCommand(a *app) *cobra.Command {
	var set, remove, add, subtract []string
	var validate bool
	c := &cobra.Command{
		Use:   "alter KIND [NAME]",
		Short: "Change settings",
		Long:  "Change settings. What is not named stays.\n\n" + kindHelp,
		Example: "  tidemark config alter topic orders --set retention.ms=3600000 --append cleanup.policy=compact\n" +
			"  tidemark config alter broker --delete log.retention.ms",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := parseResource(args)
			if err != nil {
				return err
			}
			changes, err := configChanges(set, remove, add, subtract)
			if err != nil {
				return err
			}
			if len(changes) == 0 {
				return mistake("nothing to change: give --set, --delete, --append or --subtract")
			}
			return a.client(cmd.Context(), func(ctx context.Context, client *kgo.Client) error {
				done, err := alterConfigs(ctx, client, r, changes, validate)
				if err != nil {
					return err
				}
				done.Name = strings.Join(args, " ")
				return a.report(cmd, outcomes{done})
			})
		},
	}
	c.Flags().StringArrayVarP(&set, "set", "s", nil, "give a setting a value, key=value; may be repeated")
	c.Flags().StringArrayVarP(&remove, "delete", "d", nil, "take a setting back to what it overrides; may be repeated")
	c.Flags().StringArrayVar(&add, "append", nil, "add to a list, key=value; may be repeated")
	c.Flags().StringArrayVar(&subtract, "subtract", nil, "take from a list, key=value; may be repeated")
	c.Flags().BoolVar(&validate, "validate-only", false, "only say whether it would work")
	return c
}

// configChanges reads the flags of alter commands.
func configChanges(set, remove, add, subtract []string) ([]kadm.AlterConfig, error) {
	var changes []kadm.AlterConfig
	for _, part := range []struct {
		op    kadm.IncrementalOp
		pairs []string
	}{{kadm.SetConfig, set}, {kadm.AppendConfig, add}, {kadm.SubtractConfig, subtract}} {
		for _, pair := range part.pairs {
			key, value, ok := strings.Cut(pair, "=")
			if !ok || key == "" {
				return nil, mistake("%q is not key=value", pair)
			}
			changes = append(changes, kadm.AlterConfig{Op: part.op, Name: key, Value: &value})
		}
	}
	for _, key := range remove {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: key})
	}
	return changes, nil
}

func alterConfigs(ctx context.Context, client *kgo.Client, r resource, changes []kadm.AlterConfig, validate bool) (outcome, error) {
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.ValidateOnly = validate
	one := kmsg.NewIncrementalAlterConfigsRequestResource()
	one.ResourceType, one.ResourceName = r.kind, r.name
	for _, change := range changes {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value, c.Op = change.Name, change.Value, kmsg.IncrementalAlterConfigOp(change.Op)
		one.Configs = append(one.Configs, c)
	}
	request.Resources = append(request.Resources, one)
	response, err := client.Request(ctx, request)
	if err != nil {
		return outcome{}, err
	}
	done := "changed"
	if validate {
		done = "would be changed"
	}
	for _, answer := range response.(*kmsg.IncrementalAlterConfigsResponse).Resources {
		if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
			return became("", done, err, cellText(answer.ErrorMessage)), nil
		}
	}
	return outcome{Done: done}, nil
}

// configured is a line of config list.
type configured struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

type configuredList []configured

func (l configuredList) write(p *page) {
	p.heading("KIND", "NAME")
	for _, c := range l {
		p.row(c.Kind, c.Name)
	}
}

func configListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list [KIND...]",
		Short: "List what can be configured",
		Long:  "List what can be configured.\n\n" + kindHelp,
		RunE: func(cmd *cobra.Command, kinds []string) error {
			var types []kmsg.ConfigResourceType
			for _, kind := range kinds {
				r, err := parseResource([]string{kind, ""})
				if err != nil {
					return err
				}
				types = append(types, r.kind)
			}
			return a.admin(cmd.Context(), func(ctx context.Context, admin *kadm.Client) error {
				resources, err := admin.ListConfigResources(ctx, types...)
				if err == nil {
					err = resources.Err
				}
				if err != nil {
					return err
				}
				list := configuredList{}
				for _, r := range resources.Resources {
					list = append(list, configured{kindName(r.Type), r.Name})
				}
				slices.SortFunc(list, func(x, y configured) int { return strings.Compare(x.Kind+" "+x.Name, y.Kind+" "+y.Name) })
				return a.print(cmd, list)
			})
		},
	}
}

func kindName(kind kmsg.ConfigResourceType) string {
	for name, k := range resourceKinds {
		if k == kind {
			return name
		}
	}
	return kind.String()
}
