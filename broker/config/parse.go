package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/magiconair/properties"
	"go.yaml.in/yaml/v3"
)

// Parse makes the static configuration of a broker from its sources, whatever their order: flags override the environment,
// that overrides YAML, and that overrides properties. Among sources of one format the later one wins. The warnings are for
// people: what was understood but changes nothing. The error names every wrong setting at once.
func Parse(sources []Source) (*Broker, []string, error) {
	ordered := slices.Clone(sources)
	slices.SortStableFunc(ordered, func(a, b Source) int { return int(a.Format) - int(b.Format) })

	p := parser{static: make(map[string]setting)}
	for _, source := range ordered {
		p.read(source)
	}
	p.identity()
	if len(p.errs) > 0 {
		return nil, p.warnings, errors.Join(p.errs...)
	}
	p.warnWithoutEffect()
	b, err := build(p.static, nil, nil)
	if err != nil {
		return nil, p.warnings, err
	}
	return b, p.warnings, nil
}

type parser struct {
	static   map[string]setting
	warnings []string
	errs     []error
}

func (p *parser) read(source Source) {
	var pairs map[string]string
	var err error
	switch source.Format {
	case Properties:
		pairs, err = parseProperties(source.Text)
	case YAML:
		pairs, err = parseYAML(source.Text)
	case Environment:
		pairs = p.parseEnvironment(source)
	case Flags:
		pairs, err = parseFlags(source.Pairs)
	}
	if err != nil {
		p.errs = append(p.errs, fmt.Errorf("%s: %w", source.Name, err))
		return
	}
	for _, name := range sortedKeys(pairs) {
		if err := p.set(name, pairs[name], source.Name); err != nil {
			p.errs = append(p.errs, fmt.Errorf("%s: %w", source.Name, err))
		}
	}
}

func (p *parser) set(name, value, source string) error {
	if advice := refusal(name); advice != "" {
		return fmt.Errorf("%s is not taken: %s", name, advice)
	}
	d, ok := brokerDefinition(name)
	if !ok {
		return fmt.Errorf("%s is not a known setting; did you mean %s?", name, nearest(name))
	}
	if _, err := d.Normalize(value); err != nil {
		return err
	}
	p.static[name] = setting{value: trim(value), source: source}
	return nil
}

// refusal is the advice for settings that have no place here, "" for others.
func refusal(name string) string {
	switch {
	case strings.HasPrefix(name, "zookeeper."):
		return "there is no ZooKeeper; the cluster's metadata is in the object store, named by store.url"
	case name == "process.roles":
		return "every broker can be the controller; leave it out"
	case strings.HasPrefix(name, "controller.quorum."):
		return "there is no controller quorum; the controller holds a lease in the object store, named by store.url"
	}
	if d, ok := Lookup(ResourceBroker, name); ok && d.dynamicOnly {
		return "it can only be set while the broker runs, with `tidemark config alter`"
	}
	return ""
}

// brokerDefinition finds the definition behind a broker setting's name, the names with a prefix among them:
// listener.name.<listener>.<setting> and listener.name.<listener>.<mechanism>.<setting>.
func brokerDefinition(name string) (*Definition, bool) {
	if d, ok := Lookup(ResourceBroker, name); ok {
		return d, true
	}
	rest, ok := strings.CutPrefix(name, "listener.name.")
	if !ok {
		return nil, false
	}
	_, rest, _ = strings.Cut(rest, ".")
	if d, ok := Lookup(ResourceBroker, rest); ok {
		return d, true
	}
	_, rest, _ = strings.Cut(rest, ".")
	return Lookup(ResourceBroker, rest)
}

// identity makes node.id and its alias broker.id one.
func (p *parser) identity() {
	node, hasNode := p.static["node.id"]
	alias, hasAlias := p.static["broker.id"]
	switch {
	case hasNode && hasAlias && node.value != alias.value:
		p.errs = append(p.errs, fmt.Errorf("node.id is %s (%s) but broker.id, its other name, is %s (%s)",
			node.value, node.source, alias.value, alias.source))
	case hasNode:
		p.static["broker.id"] = node
	case hasAlias:
		p.static["node.id"] = alias
	default:
		p.errs = append(p.errs, errors.New("node.id is not set: give each broker of the cluster a number of its own"))
	}
}

func (p *parser) warnWithoutEffect() {
	var idle []string
	for _, name := range sortedKeys(p.static) {
		if d, _ := brokerDefinition(name); !d.HasEffect() {
			idle = append(idle, name)
		}
	}
	if len(idle) > 0 {
		p.warnings = append(p.warnings, "known, but without effect in this version: "+strings.Join(idle, ", "))
	}
}

func parseProperties(text string) (map[string]string, error) {
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	p, err := loader.LoadBytes([]byte(text))
	if err != nil {
		return nil, err
	}
	return p.Map(), nil
}

// parseYAML flattens mappings into dotted names and joins sequences with commas. It keeps the text of scalars as written.
func parseYAML(text string) (map[string]string, error) {
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		return nil, err
	}
	pairs := make(map[string]string)
	if len(root.Content) == 0 {
		return pairs, nil
	}
	return pairs, flatten(root.Content[0], "", pairs)
}

func flatten(node *yaml.Node, name string, pairs map[string]string) error {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i].Value
			if name != "" {
				key = name + "." + key
			}
			if err := flatten(node.Content[i+1], key, pairs); err != nil {
				return err
			}
		}
		return nil
	case yaml.SequenceNode:
		members := make([]string, len(node.Content))
		for i, member := range node.Content {
			if member.Kind != yaml.ScalarNode {
				return fmt.Errorf("line %d: a member of %s is not a plain value", member.Line, name)
			}
			members[i] = member.Value
		}
		return addPair(pairs, name, strings.Join(members, ","), node.Line)
	case yaml.ScalarNode:
		if node.Tag == "!!null" {
			return nil
		}
		return addPair(pairs, name, node.Value, node.Line)
	default:
		return fmt.Errorf("line %d: aliases are not supported", node.Line)
	}
}

func addPair(pairs map[string]string, name, value string, line int) error {
	if name == "" {
		return fmt.Errorf("line %d: expected names and values", line)
	}
	if _, twice := pairs[name]; twice {
		return fmt.Errorf("line %d: %s is set twice", line, name)
	}
	pairs[name] = value
	return nil
}

// environmentPrefix begins the variables that are settings: TIDEMARK_LOG_SEGMENT_BYTES is log.segment.bytes.
const environmentPrefix = "TIDEMARK_"

// parseEnvironment takes the known settings. An unknown variable is only warned of: orchestrators put their own there, such as
// TIDEMARK_SERVICE_HOST for a service of that name, and other programs of this project read TIDEMARK_BOOTSTRAP.
func (p *parser) parseEnvironment(source Source) map[string]string {
	pairs := make(map[string]string)
	for _, pair := range source.Pairs {
		variable, value, _ := strings.Cut(pair, "=")
		rest, ok := strings.CutPrefix(variable, environmentPrefix)
		if !ok || variable == "TIDEMARK_BOOTSTRAP" || strings.HasPrefix(rest, "TEST_") {
			continue
		}
		name := strings.ToLower(strings.ReplaceAll(rest, "_", "."))
		if _, known := brokerDefinition(name); !known && refusal(name) == "" {
			p.warnings = append(p.warnings, fmt.Sprintf("%s: %s is not a setting and is left out (the nearest is %s)", source.Name, variable, nearest(name)))
			continue
		}
		pairs[name] = value
	}
	return pairs
}

func parseFlags(list []string) (map[string]string, error) {
	pairs := make(map[string]string)
	for _, pair := range list {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not key=value", pair)
		}
		pairs[strings.TrimSpace(name)] = value
	}
	return pairs, nil
}

// nearest is the known setting that takes the fewest edits to get to.
func nearest(name string) string {
	best, least := "", len(name)+64
	for _, d := range Definitions(ResourceBroker) {
		if n := editDistance(name, d.Name); n < least {
			best, least = d.Name, n
		}
	}
	return best
}

// editDistance is the number of characters to insert, delete or replace to turn a into b (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
