package config

import "fmt"

// Planned features whose settings exist already.
const (
	speed = "speed"
)

// noEffectYet maps each setting that no code reads to the planned feature that will read it. The manual marks these
// settings, and a test checks the list.
var noEffectYet = map[string]string{
	"optimizations.tool_cache":         speed,
	"optimizations.parallel_discovery": speed,
}

// fleetBehaves are the values of noEffectYet's settings that describe what the fleet does anyway.
var fleetBehaves = map[string]string{
	"optimizations.tool_cache": "true", "optimizations.parallel_discovery": "true",
}

// warnNoEffect warns of each given setting that changes nothing.
func (l *loader) warnNoEffect() {
	for _, k := range l.keys {
		from, feature := l.cfg.Origin(k.path), noEffectYet[k.path]
		value := fmt.Sprint(k.value)
		if feature != "" && from.Layer != LayerDefault && value != "" && value != fleetBehaves[k.path] {
			l.warn(settingOf(from, k.path), "no effect yet: planned for "+feature)
		}
	}
	l.warnRestore()
}

// settingOf returns where a setting was given, and its key if the place does not name it.
func settingOf(from Origin, key string) string {
	if from.Layer == LayerFile {
		return from.Where + ": " + key
	}
	return from.Where
}
