package codegen

import "strings"

func sample(server, name string, params ...string) Tool {
	t := Tool{Server: server, Name: name}
	for _, p := range params {
		optional := strings.HasSuffix(p, "?")
		t.Params = append(t.Params, Param{Name: strings.TrimSuffix(p, "?"), Type: "str", Required: !optional})
	}
	return t
}

// Eleven are the tools of the shipped servers.
func Eleven() []Tool {
	return []Tool{
		sample("calculator", "add", "a", "b"), sample("calculator", "multiply", "a", "b"),
		sample("calculator", "calculate", "expression"),
		sample("weather", "get_weather", "location", "units?"),
		sample("weather", "get_forecast", "location", "days?", "units?"),
		sample("filesystem", "read_file", "path", "encoding?"),
		sample("filesystem", "write_file", "path", "content", "encoding?"),
		sample("filesystem", "list_directory", "path", "recursive?"),
		sample("database", "query", "sql", "parameters?"), sample("database", "execute", "sql", "parameters?"),
		sample("database", "list_tables"),
	}
}
