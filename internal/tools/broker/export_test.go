package broker

import "encoding/json"

// Validates reports whether the worker validates values of a schema, instead of leaving that to the server.
func Validates(schema json.RawMessage) bool { return compile(schema) != nil }
