package metadata

// Since is what changed from an image to a later one: what a broker has to do that was away, or, from Empty, that has just
// read the metadata. It takes time in proportion to both images.
func (i *Image) Since(before *Image) Delta {
	b := newBuilder(before)
	b.next = i
	for _, image := range []*Image{before, i} {
		for t := range image.Topics("") {
			b.topics[t.ID] = true
		}
		for r := range image.configs.all(ConfigResource{}) {
			b.configs[r] = true
		}
		for broker := range image.Brokers() {
			b.brokers[broker.ID] = true
		}
	}
	return b.delta()
}
