package config

import "testing"

func BenchmarkResolveTopic(b *testing.B) {
	broker, _, err := Parse([]Source{minimal})
	if err != nil {
		b.Fatal(err)
	}
	overrides := map[string]string{"retention.ms": "5", "cleanup.policy": "compact"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ResolveTopic(broker, overrides); err != nil {
			b.Fatal(err)
		}
	}
}
