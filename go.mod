module github.com/codefleet/codefleet

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
	golang.org/x/sys v0.49.0
	golang.org/x/text v0.43.0
)

require (
	github.com/opencontainers/runtime-spec v1.2.1 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)
