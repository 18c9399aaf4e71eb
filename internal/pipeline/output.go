package pipeline

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// output converts the program's output to text, piece by piece. If a piece ends within a character, output holds back
// the bytes of that character until the next piece. It replaces invalid UTF-8. The log stores the text as JSON, in
// which some characters take six times their size. In place of the first piece with which a stream's JSON exceeds room
// bytes, output emits "…" and ends the stream: the result has all of the output.
type output struct {
	emit func(stream, text string)
	rest map[string][]byte // bytes held back, by stream
	room map[string]int64  // bytes of JSON that may still be emitted, by stream; negative if the stream has ended
}

// newOutput returns an output for a program whose streams are limited to limit bytes each.
func newOutput(limit int64, emit func(stream, text string)) *output {
	room := 2 * limit // enough for text with many quotation marks and newlines
	return &output{emit: emit, rest: map[string][]byte{}, room: map[string]int64{"stdout": room, "stderr": room}}
}

func (o *output) write(stream string, data []byte) {
	data = append(o.rest[stream], data...)
	whole := len(data) - unfinished(data)
	o.rest[stream] = append([]byte(nil), data[whole:]...)
	if whole > 0 {
		o.emitWithin(stream, strings.ToValidUTF8(string(data[:whole]), "�"))
	}
}

// flush emits a replacement character for each stream that ended within a character.
func (o *output) flush() {
	for _, stream := range []string{"stdout", "stderr"} {
		if len(o.rest[stream]) > 0 {
			o.emitWithin(stream, "�")
			delete(o.rest, stream)
		}
	}
}

// emitWithin emits text if the stream has room for it, and else "…" as the stream's last piece.
func (o *output) emitWithin(stream, text string) {
	if o.room[stream] < 0 {
		return
	}
	data, _ := json.Marshal(text) // cannot fail for a string
	if o.room[stream] -= int64(len(data) - len(`""`)); o.room[stream] < 0 {
		text = "…"
	}
	o.emit(stream, text)
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
