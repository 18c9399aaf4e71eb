package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionInfo is what `codefleet version -o json` prints.
type versionInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version",
		RunE: a.do(func(context.Context, []string) error {
			v := thisVersion()
			return a.print(v, func(w io.Writer) { fmt.Fprintln(w, versionLine(v)) })
		}),
	}
}

func versionLine(v versionInfo) string {
	return fmt.Sprintf("codefleet %s (%s, %s)", v.Version, v.Go, v.Platform)
}

// versionJSON returns what `codefleet version -o json` prints.
func versionJSON(v versionInfo) string {
	data, _ := json.Marshal(v) // cannot fail: only strings
	return string(indented(data))
}

func thisVersion() versionInfo {
	v := versionInfo{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value
			}
		}
	}
	return v
}
