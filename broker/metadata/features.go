package metadata

// MetadataVersion is the feature that stands for the format of the metadata. Kafka's tools print a release for its level.
const MetadataVersion = "metadata.version"

// SupportedFeatures are the levels that this version works with, sorted by name: the levels of Kafka 4.4 for what is built.
func SupportedFeatures() []SupportedFeature {
	return []SupportedFeature{{Name: MetadataVersion, Min: 7, Max: 33}}
}
