package bucket

// Location says where a store is.
type Location struct {
	Bucket    string
	Prefix    string // a folder in the bucket; empty for all of it
	Endpoint  string // http:// or https://, host and port; empty for that of AWS
	Region    string // empty for what the client takes from its environment
	PathStyle bool   // the bucket is in the path of a request and not in its host name
	CAFile    string // certificates of a private authority; empty for AWS_CA_BUNDLE's
}
