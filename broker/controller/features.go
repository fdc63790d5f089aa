package controller

import (
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// updateFeatures changes all features or none.
func (s *step) updateFeatures(change *metadata.UpdateFeatures) *metadata.UpdateFeaturesAnswer {
	before := *s
	answer := &metadata.UpdateFeaturesAnswer{}
	for _, update := range change.Updates {
		if problem := s.updateFeature(update); problem != "" {
			*s = before
			return &metadata.UpdateFeaturesAnswer{Result: metadata.Result{
				Code:    wire.InvalidUpdateVersion,
				Message: "The update failed for all features since the following feature had an error: " + problem,
			}}
		}
		answer.Features = append(answer.Features, metadata.NamedResult{Name: update.Name})
	}
	return answer
}

// updateFeature gives the text of what is wrong with an update, "" if it is done.
func (s *step) updateFeature(u metadata.FeatureUpdate) string {
	current := s.image.Features().Level(u.Name)
	invalid := func(why string, args ...any) string {
		return fmt.Sprintf("Invalid update version %d for feature %s. ", u.Level, u.Name) + fmt.Sprintf(why, args...)
	}
	switch {
	case u.Type < metadata.Upgrade || u.Type > metadata.UnsafeDowngrade:
		return invalid("The controller does not support the given upgrade type.")
	case u.Level < 0:
		return invalid("A feature version cannot be less than 0.")
	}
	if problem := s.unsupported(u); problem != "" {
		return invalid("%s", problem)
	}
	if u.Level < current && u.Type == metadata.Upgrade {
		return invalid("Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.")
	}
	if u.Name == metadata.MetadataVersion && u.Level < current {
		why := "Refusing to perform the requested downgrade because it might delete metadata information."
		if u.Type == metadata.UnsafeDowngrade {
			why = "Unsafe metadata downgrade is not supported in this version."
		}
		return fmt.Sprintf("Unsupported metadata.version downgrade from %d to %d. %s", current, u.Level, why)
	}
	if u.Level != current {
		s.add(&metadata.FeatureLevelRecord{Name: u.Name, Level: u.Level})
	}
	return ""
}

// unsupported gives the text of who can't work with the level, "" if everyone can.
func (s *step) unsupported(u metadata.FeatureUpdate) string {
	own := metadata.SupportedFeatures()
	if u.Level == 0 && !slices.ContainsFunc(own, func(f metadata.SupportedFeature) bool { return f.Name == u.Name }) {
		return fmt.Sprintf("Feature %s not found.", u.Name)
	}
	if problem := outside(own, u, fmt.Sprintf("Local controller %d", s.self)); problem != "" {
		return problem
	}
	for b := range s.image.Brokers() {
		if problem := outside(b.Features, u, fmt.Sprintf("Broker %d", b.ID)); problem != "" {
			return problem
		}
	}
	return ""
}

func outside(features []metadata.SupportedFeature, u metadata.FeatureUpdate, who string) string {
	for _, f := range features {
		if f.Name != u.Name {
			continue
		}
		if u.Level < f.Min || u.Level > f.Max {
			return fmt.Sprintf("%s only supports versions %d-%d", who, f.Min, f.Max)
		}
		return ""
	}
	return who + " does not support this feature."
}
