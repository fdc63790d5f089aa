// Package crash holds the campaigns that kill real brokers and damage real files: go test ./deploy/crash, or make crash for as many
// rounds as it takes to believe it. It has nothing to import.
package crash
