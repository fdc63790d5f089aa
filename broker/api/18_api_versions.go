package api

import (
	"regexp"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/broker/metadata"
	"github.com/tidemark-io/tidemark/broker/wire"
)

// softwareName is what clients may call themselves (KIP-511).
var softwareName = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)

// handleAPIVersions is the one handler that sees versions which are not served: it answers them in the layout of version 0,
// with error 35 and the range of ApiVersions itself (KIP-511).
func handleAPIVersions(s *Server, c *call, body []byte) {
	response := kmsg.NewPtrApiVersionsResponse()
	if c.Version < c.entry.Min || c.Version > c.entry.Max {
		c.Version = 0
		response.ErrorCode = int16(wire.UnsupportedVersion)
		response.ApiKeys = []kmsg.ApiVersionsResponseApiKey{announced(c.entry)}
		c.answer(response)
		return
	}
	request := kmsg.NewPtrApiVersionsRequest()
	request.SetVersion(c.Version)
	if err := request.ReadFrom(body); err != nil {
		c.close(err)
		return
	}
	image := s.Image()
	if code := s.checkClient(request); code != wire.None {
		response.ErrorCode = int16(code)
		c.answer(response)
		return
	}
	c.Session.ClientSoftware = request.ClientSoftwareName
	response.ApiKeys = s.announced
	features := image.Features()
	response.FinalizedFeaturesEpoch = int64(features.Epoch)
	for _, f := range metadata.SupportedFeatures() {
		if f.Min > 0 || c.Version >= 4 {
			response.SupportedFeatures = append(response.SupportedFeatures,
				kmsg.ApiVersionsResponseSupportedFeature{Name: f.Name, MinVersion: f.Min, MaxVersion: f.Max})
		}
	}
	for _, f := range features.Levels {
		response.FinalizedFeatures = append(response.FinalizedFeatures,
			kmsg.ApiVersionsResponseFinalizedFeature{Name: f.Name, MinVersionLevel: f.Level, MaxVersionLevel: f.Level})
	}
	c.answer(response)
}

// checkClient verifies how a client names itself and, from version 5, whether it reached the cluster and node it wants
// (KIP-1242).
func (s *Server) checkClient(request *kmsg.ApiVersionsRequest) wire.Code {
	if request.Version >= 3 &&
		(!softwareName.MatchString(request.ClientSoftwareName) || !softwareName.MatchString(request.ClientSoftwareVersion)) {
		return wire.InvalidRequest
	}
	if request.Version < 5 || request.ClusterID == nil && request.NodeID == -1 {
		return wire.None
	}
	if request.ClusterID == nil || request.NodeID == -1 {
		return wire.InvalidRequest
	}
	if *request.ClusterID != s.clusterID || wire.BrokerID(request.NodeID) != s.self {
		return wire.RebootstrapRequired
	}
	return wire.None
}

func announced(e *Entry) kmsg.ApiVersionsResponseApiKey {
	return kmsg.ApiVersionsResponseApiKey{ApiKey: int16(e.Key), MinVersion: e.advertisedMin(), MaxVersion: e.Max}
}
