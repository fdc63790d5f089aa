package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func handleUpdateFeatures(s *Server, c *call, request *kmsg.UpdateFeaturesRequest) {
	change := &metadata.UpdateFeatures{ValidateOnly: request.ValidateOnly}
	for _, u := range request.FeatureUpdates {
		kind := metadata.UpgradeType(u.UpgradeType)
		if request.Version == 0 {
			kind = metadata.Upgrade
			if u.AllowDowngrade {
				kind = metadata.SafeDowngrade
			}
		}
		change.Updates = append(change.Updates, metadata.FeatureUpdate{Name: u.Feature, Level: u.MaxVersionLevel, Type: kind})
	}
	submit(s, c, change, request.TimeoutMillis, func(answer *metadata.UpdateFeaturesAnswer, code wire.Code) {
		response := kmsg.NewPtrUpdateFeaturesResponse()
		if code != wire.None {
			answer = &metadata.UpdateFeaturesAnswer{Result: metadata.Result{Code: code}}
		}
		response.ErrorCode, response.ErrorMessage = int16(answer.Result.Code), message(answer.Result)
		for _, f := range answer.Features {
			if f.Result.Code == wire.None && f.Result.Message == "" {
				f.Result.Message = "NONE" // Kafka's text for success
			}
			row := kmsg.NewUpdateFeaturesResponseResult()
			row.Feature, row.ErrorCode, row.ErrorMessage = f.Name, int16(f.Result.Code), message(f.Result)
			response.Results = append(response.Results, row)
		}
		c.answer(response)
	})
}
