// A third party's module: nothing of it is part of Caponier's own. Outside of this checkout, the replace line names yours, or goes away.
module example.com/service

go 1.26.0

require github.com/caponier-mcp/caponier/sdk v0.0.0

replace github.com/caponier-mcp/caponier/sdk => ../../../sdk
