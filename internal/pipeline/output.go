package pipeline

import (
	"strings"
	"unicode/utf8"
)

// output converts the program's output to text, piece by piece. If a piece ends within a character, output holds back
// the bytes of that character until the next piece. It replaces invalid UTF-8.
type output struct {
	emit func(stream, text string)
	rest map[string][]byte // bytes held back, by stream
}

func newOutput(emit func(stream, text string)) *output {
	return &output{emit: emit, rest: map[string][]byte{}}
}

func (o *output) write(stream string, data []byte) {
	data = append(o.rest[stream], data...)
	whole := len(data) - unfinished(data)
	o.rest[stream] = append([]byte(nil), data[whole:]...)
	if whole > 0 {
		o.emit(stream, strings.ToValidUTF8(string(data[:whole]), "�"))
	}
}

// flush emits a replacement character for each stream that ended within a character.
func (o *output) flush() {
	for _, stream := range []string{"stdout", "stderr"} {
		if len(o.rest[stream]) > 0 {
			o.emit(stream, "�")
			delete(o.rest, stream)
		}
	}
}

// unfinished returns the length of the incomplete character at the end of data, in bytes.
func unfinished(data []byte) int {
	for n := 1; n <= min(utf8.UTFMax-1, len(data)); n++ {
		if tail := data[len(data)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
