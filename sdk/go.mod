// The SDK is a module of its own: a plugin requires it and nothing else.
module github.com/caponier-mcp/caponier/sdk

go 1.26.0
