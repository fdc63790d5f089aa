package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func handleAlterConfigs(s *Server, c *call, request *kmsg.AlterConfigsRequest) {
	change := &metadata.AlterConfigs{ValidateOnly: request.ValidateOnly}
	for _, r := range request.Resources {
		configs := metadata.ResourceConfigs{Resource: metadata.ConfigResource{Type: metadata.ResourceType(r.ResourceType), Name: r.ResourceName}}
		for _, entry := range r.Configs {
			configs.Configs = append(configs.Configs, metadata.ConfigEntry{Name: entry.Name, Value: entry.Value})
		}
		change.Resources = append(change.Resources, configs)
	}
	submit(s, c, change, int32(s.Config().RequestTimeoutMs), func(answer *metadata.AlterConfigsAnswer, code wire.Code) {
		response := kmsg.NewPtrAlterConfigsResponse()
		if code != wire.None {
			answer = refusedConfigs(len(change.Resources), code, func(i int) metadata.ConfigResource { return change.Resources[i].Resource })
		}
		for _, r := range answer.Resources {
			row := kmsg.NewAlterConfigsResponseResource()
			row.ErrorCode, row.ErrorMessage = int16(r.Result.Code), message(r.Result)
			row.ResourceType, row.ResourceName = kmsg.ConfigResourceType(r.Resource.Type), r.Resource.Name
			response.Resources = append(response.Resources, row)
		}
		c.answer(response)
	})
}
