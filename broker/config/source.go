package config

// Origin says which layer a value comes from. The numbers are those of ConfigSource in DescribeConfigs.
type Origin int8

// The origins. A topic's or broker's value comes from the most specific one that has it, the smallest number first.
const (
	OriginTopic         Origin = 1
	OriginBroker        Origin = 2 // dynamic, one broker
	OriginCluster       Origin = 3 // dynamic, all brokers
	OriginStatic        Origin = 4 // file, environment or command line
	OriginDefault       Origin = 5
	OriginClientMetrics Origin = 7
	OriginGroup         Origin = 8
)

// Format is the language of a Source.
type Format int8

// The formats of a Source, in the order of precedence: a later one overrides an earlier one.
const (
	Properties  Format = iota // Text is a Java properties file
	YAML                      // Text is a YAML file; nested keys are joined with dots
	Environment               // Pairs are the process's variables, NAME=value; only TIDEMARK_* is looked at
	Flags                     // Pairs are key=value
)

// Source is one place that settings were read from.
type Source struct {
	Format Format
	Name   string // what people call it, as in "broker.properties" or "--set"
	Text   string
	Pairs  []string
}
