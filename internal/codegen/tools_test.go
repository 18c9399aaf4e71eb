package codegen

import "strings"

// sampleTool returns a tool with string parameters; a parameter that ends with "?" is optional.
func sampleTool(server, name string, params ...string) Tool {
	t := Tool{Server: server, Name: name}
	for _, p := range params {
		optional := strings.HasSuffix(p, "?")
		t.Params = append(t.Params, Param{Name: strings.TrimSuffix(p, "?"), Type: "str", Required: !optional})
	}
	return t
}

// ShippedTools returns the eleven tools of the servers that codefleet ships.
func ShippedTools() []Tool {
	return []Tool{
		sampleTool("calculator", "add", "a", "b"), sampleTool("calculator", "multiply", "a", "b"),
		sampleTool("calculator", "calculate", "expression"),
		sampleTool("weather", "get_weather", "location", "units?"),
		sampleTool("weather", "get_forecast", "location", "days?", "units?"),
		sampleTool("filesystem", "read_file", "path", "encoding?"),
		sampleTool("filesystem", "write_file", "path", "content", "encoding?"),
		sampleTool("filesystem", "list_directory", "path", "recursive?"),
		sampleTool("database", "query", "sql", "parameters?"), sampleTool("database", "execute", "sql", "parameters?"),
		sampleTool("database", "list_tables"),
	}
}
