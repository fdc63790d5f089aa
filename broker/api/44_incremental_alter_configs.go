package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

func handleIncrementalAlterConfigs(s *Server, c *call, request *kmsg.IncrementalAlterConfigsRequest) {
	change := &metadata.IncrementalAlterConfigs{ValidateOnly: request.ValidateOnly}
	for _, r := range request.Resources {
		ops := metadata.ResourceOps{Resource: metadata.ConfigResource{Type: metadata.ResourceType(r.ResourceType), Name: r.ResourceName}}
		for _, op := range r.Configs {
			ops.Ops = append(ops.Ops, metadata.ConfigOp{Name: op.Name, Op: metadata.ConfigOpType(op.Op), Value: op.Value})
		}
		change.Resources = append(change.Resources, ops)
	}
	submit(s, c, change, int32(s.Config().RequestTimeoutMs), func(answer *metadata.AlterConfigsAnswer, code wire.Code) {
		response := kmsg.NewPtrIncrementalAlterConfigsResponse()
		if code != wire.None {
			answer = refusedConfigs(len(change.Resources), code, func(i int) metadata.ConfigResource { return change.Resources[i].Resource })
		}
		for _, r := range answer.Resources {
			row := kmsg.NewIncrementalAlterConfigsResponseResource()
			row.ErrorCode, row.ErrorMessage = int16(r.Result.Code), message(r.Result)
			row.ResourceType, row.ResourceName = kmsg.ConfigResourceType(r.Resource.Type), r.Resource.Name
			response.Resources = append(response.Resources, row)
		}
		c.answer(response)
	})
}

// refusedConfigs is the answer to a change of n resources that was refused as a whole.
func refusedConfigs(n int, code wire.Code, resource func(i int) metadata.ConfigResource) *metadata.AlterConfigsAnswer {
	answer := &metadata.AlterConfigsAnswer{}
	for i := range n {
		answer.Resources = append(answer.Resources, metadata.ResourceResult{Resource: resource(i), Result: metadata.Result{Code: code}})
	}
	return answer
}
