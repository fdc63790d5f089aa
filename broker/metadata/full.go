package metadata

// FromEmpty is the delta from the empty cluster to i: what a broker that has just read the metadata has to do.
func (i *Image) FromEmpty() Delta {
	b := newBuilder(Empty())
	b.next = i
	for t := range i.Topics("") {
		b.topics[t.ID] = true
	}
	for r := range i.configs.all(ConfigResource{}) {
		b.configs[r] = true
	}
	for broker := range i.Brokers() {
		b.brokers[broker.ID] = true
	}
	return b.delta()
}
