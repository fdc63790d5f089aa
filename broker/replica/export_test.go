package replica

// SessionPartitionsMax is the bound on the partitions of all sessions.
const SessionPartitionsMax = sessionPartitionsMax

// SetSessionEpoch spares a test two billion fetches.
func SetSessionEpoch(c *FetchSessionCache, id, epoch int32) { c.sessions[id].epoch = epoch }
