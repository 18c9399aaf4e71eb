package config

import "fmt"

// noEffectYet maps each setting that no code reads to the value that describes what the fleet does anyway; "" means
// that no value does. The manual marks these settings, and a test checks that the map is complete.
var noEffectYet = map[string]string{
	"optimizations.tool_cache":         "true",
	"optimizations.parallel_discovery": "true",
}

// warnNoEffect warns of each given setting that changes nothing.
func (l *loader) warnNoEffect() {
	for _, k := range l.keys {
		from, value := l.cfg.Origin(k.path), fmt.Sprint(k.value)
		anyway, noEffect := noEffectYet[k.path]
		if noEffect && from.Layer != LayerDefault && value != "" && value != anyway {
			l.warn(settingOf(from, k.path), "no effect yet")
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
