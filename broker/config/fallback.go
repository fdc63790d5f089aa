package config

import "strconv"

// link is one setting of a chain in which the first that has a value counts; scale turns its unit into milliseconds.
type link struct {
	name  string
	scale int64
}

// chains are the broker settings that stand in for each other.
var chains = [][]link{
	{{"log.retention.ms", 1}, {"log.retention.minutes", 60_000}, {"log.retention.hours", 3_600_000}},
	{{"log.roll.ms", 1}, {"log.roll.hours", 3_600_000}},
	{{"log.roll.jitter.ms", 1}, {"log.roll.jitter.hours", 3_600_000}},
	{{"log.flush.interval.ms", 1}, {"log.flush.scheduler.interval.ms", 1}},
}

// chainOf is the chain that a setting belongs to, itself alone for most.
func chainOf(name string) []link {
	for _, chain := range chains {
		for _, l := range chain {
			if l.name == name {
				return chain
			}
		}
	}
	return []link{{name, 1}}
}

// fallback is the effective text of a broker setting or of the one that stands in for it. A negative time, in whatever unit, is
// -1: no limit.
func (b *Broker) fallback(name string) string {
	chain := chainOf(name)
	for _, l := range chain {
		text := b.values[l.name]
		if text == Null {
			continue
		}
		if len(chain) == 1 {
			return text
		}
		n, _ := strconv.ParseInt(text, 10, 64)
		return strconv.FormatInt(max(n*l.scale, -1), 10)
	}
	return Null
}
