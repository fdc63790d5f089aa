package config

// Entry is one setting in an answer of DescribeConfigs.
type Entry struct {
	Name      string
	Value     *string // nil: there is none, or it is sensitive
	Origin    Origin
	ReadOnly  bool
	Sensitive bool
	Type      Type
	Doc       string
	Synonyms  []Synonym
}

// Synonym is a layer's value for a setting, the one that counts first.
type Synonym struct {
	Name   string
	Value  *string
	Origin Origin
}

// DescribeTopic lists the settings of a topic with its overrides, by name.
func DescribeTopic(b *Broker, overrides map[string]string) []Entry {
	var entries []Entry
	for _, d := range Definitions(ResourceTopic) {
		if _, set := overrides[d.Name]; d.own && !set {
			continue
		}
		text, _ := b.topicText(d, overrides)
		entries = append(entries, b.describeOverride(d, OriginTopic, text, overrides))
	}
	return entries
}

// DescribeGroup lists the settings of a group with its overrides, by name.
func DescribeGroup(b *Broker, overrides map[string]string) []Entry {
	var entries []Entry
	for _, d := range Definitions(ResourceGroup) {
		e := b.describeOverride(d, OriginGroup, b.groupText(d, overrides), overrides)
		if d.synonym == "" {
			e.Synonyms = append(e.Synonyms, Synonym{d.Name, &d.Default, OriginDefault})
		}
		entries = append(entries, e)
	}
	return entries
}

// groupText is the effective text of one group setting.
func (b *Broker) groupText(d *Definition, overrides map[string]string) string {
	if value, ok := overrides[d.Name]; ok {
		if text, err := d.Normalize(value); err == nil {
			return text
		}
	}
	switch {
	case d.Name == "streams.assignor.name":
		if assignors := SplitList(b.values[d.synonym]); len(assignors) > 0 {
			return assignors[0]
		}
		return Null
	case d.synonym != "":
		return b.fallback(d.synonym)
	default:
		return d.Default
	}
}

func (b *Broker) describeOverride(d *Definition, origin Origin, text string, overrides map[string]string) Entry {
	e := Entry{Name: d.Name, Value: optional(text), Origin: OriginDefault, Type: d.Type, Doc: d.Doc}
	if _, set := overrides[d.Name]; set {
		e.Synonyms = append(e.Synonyms, Synonym{d.Name, e.Value, origin})
	}
	if d.synonym != "" {
		e.Synonyms = append(e.Synonyms, b.synonyms(d.synonym, chainNames(d.synonym), false)...)
	}
	if len(e.Synonyms) > 0 {
		e.Origin = e.Synonyms[0].Origin
	}
	return e
}

// DescribeBroker lists the settings of the broker, by name; names that are set but unknown among them, without value.
func DescribeBroker(b *Broker) []Entry {
	var entries []Entry
	for _, name := range b.names() {
		value, _ := b.Value(name)
		entries = append(entries, b.describe(name, optional(value), b.synonyms(name, synonymNames(name), sensitive(name))))
	}
	return entries
}

// DescribeCluster lists the dynamic settings of all brokers, by name: the broker resource without a name.
func DescribeCluster(b *Broker) []Entry {
	var entries []Entry
	for _, name := range sortedKeys(b.cluster) {
		value := b.cluster[name]
		var synonyms []Synonym
		for _, s := range b.synonyms(name, synonymNames(name), sensitive(name)) {
			if s.Origin == OriginCluster {
				synonyms = append(synonyms, s)
			}
		}
		entries = append(entries, b.describe(name, &value, synonyms))
	}
	return entries
}

func (b *Broker) describe(name string, value *string, synonyms []Synonym) Entry {
	e := Entry{Name: name, Value: value, Origin: OriginDefault, ReadOnly: true, Sensitive: sensitive(name), Synonyms: synonyms}
	if e.Sensitive {
		e.Value = nil
	}
	if d, known := brokerDefinition(name); known {
		e.Type, e.Doc = d.Type, d.Doc
	}
	if d, known := Lookup(ResourceBroker, name); known { // a name with a prefix is read-only, as Kafka reports it
		e.ReadOnly = d.Mode == ReadOnly
	}
	if len(synonyms) > 0 {
		e.Origin = synonyms[0].Origin
	}
	return e
}

// synonyms lists the values that the layers hold for names, from the first one on that is called name: what stands before it
// are settings that override name without being it.
func (b *Broker) synonyms(name string, names []string, hidden bool) []Synonym {
	var all []Synonym
	for _, layer := range b.layers() {
		for _, n := range names {
			value, ok := layer.get(n)
			if !ok || len(all) == 0 && n != name {
				continue
			}
			s := Synonym{Name: n, Value: &value, Origin: layer.origin}
			if hidden {
				s.Value = nil
			}
			all = append(all, s)
		}
	}
	return all
}

// chainNames is the names of the settings that stand in for each other.
func chainNames(name string) []string {
	var names []string
	for _, l := range chainOf(name) {
		names = append(names, l.name)
	}
	return names
}

// synonymNames is chainNames; a name with a listener's prefix falls back to the plain one.
func synonymNames(name string) []string {
	if d, known := brokerDefinition(name); known && d.Name != name && !d.own {
		return []string{name, d.Name}
	}
	return chainNames(name)
}

// sensitive tells whether a broker setting's value is hidden; what is not known might be a secret.
func sensitive(name string) bool {
	d, known := brokerDefinition(name)
	return !known || d.Sensitive()
}

// DescribeClientMetrics lists the settings of a client metrics subscription, by name.
func DescribeClientMetrics(overrides map[string]string) []Entry {
	var entries []Entry
	for _, d := range Definitions(ResourceClientMetrics) {
		e := Entry{Name: d.Name, Value: &d.Default, Origin: OriginDefault, Type: d.Type, Doc: d.Doc}
		if value, set := overrides[d.Name]; set {
			e.Value, e.Origin = &value, OriginClientMetrics
			e.Synonyms = []Synonym{{d.Name, &value, OriginClientMetrics}}
		}
		entries = append(entries, e)
	}
	return entries
}

func optional(text string) *string {
	if text == Null {
		return nil
	}
	return &text
}
