package main

import (
	"math/bits"
	"time"
)

// histogram counts durations in buckets that are at most 1/32 of their value wide, so that a figure is right to 3 %.
type histogram struct {
	counts [64 * histogramSteps]uint64
	total  uint64
	sum    time.Duration
	most   time.Duration
}

const histogramSteps = 32

func (h *histogram) add(d time.Duration) {
	h.counts[bucketOf(d)]++
	h.total++
	h.sum += d
	h.most = max(h.most, d)
}

// bucketOf is the bucket of d in microseconds: exact below 32, then 32 steps for each doubling.
func bucketOf(d time.Duration) int {
	micros := uint64(max(d.Microseconds(), 0))
	if micros < histogramSteps {
		return int(micros)
	}
	shift := bits.Len64(micros) - 6 // leaves the 6 leading bits: 32 to 63
	return (shift+1)*histogramSteps + int(micros>>shift) - histogramSteps
}

// ceilingOf is the longest duration of a bucket.
func ceilingOf(bucket int) time.Duration {
	if bucket < 2*histogramSteps {
		return time.Duration(bucket) * time.Microsecond
	}
	shift := bucket/histogramSteps - 1
	leading := uint64(bucket%histogramSteps + histogramSteps)
	return time.Duration((leading+1)<<shift-1) * time.Microsecond
}

// quantile is the duration that the share q of all did not exceed.
func (h *histogram) quantile(q float64) time.Duration {
	rank := uint64(q * float64(h.total))
	var seen uint64
	for bucket, n := range h.counts {
		if seen += n; n > 0 && seen > rank {
			return min(ceilingOf(bucket), h.most)
		}
	}
	return h.most
}

func (h *histogram) mean() time.Duration {
	if h.total == 0 {
		return 0
	}
	return h.sum / time.Duration(h.total)
}
