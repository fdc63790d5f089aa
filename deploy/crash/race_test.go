//go:build race

package crash

func init() { raceDetector = true }
