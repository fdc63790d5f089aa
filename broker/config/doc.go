// Package config knows every setting: Kafka's broker, topic, group and client-metrics configs with their names, types,
// defaults, checks and ways of change, and Tidemark's own. It turns the text of files, environment and command line into
// a typed Broker, and the overrides of a topic into a typed Topic; it says what DescribeConfigs reports and judges what
// AlterConfigs asks for. It also names the limits of the broker (limits.go).
//
// It is pure: no file, no environment, no clock. A Broker and a Topic never change after they were made; a dynamic change
// makes new ones.
package config
