package codegen

import (
	"strings"
	"sync"

	"github.com/tiktoken-go/tokenizer"
)

// maxCounted is how many bytes of a text are counted; what is longer counts in proportion.
const maxCounted = 256 << 10

// vocabulary is that of the GPT-4o family and its successors; it is decoded at its first use, in about 50 ms.
var vocabulary = sync.OnceValue(func() tokenizer.Codec {
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		panic("codegen: embedded vocabulary: " + err.Error())
	}
	return codec
})

// Tokens counts a text's tokens with the vocabulary o200k_base. For models of other families, which have vocabularies
// of their own, it is an approximation. It is used where an endpoint does not report its own count, and for what was
// never sent.
func Tokens(s string) int {
	whole := len(s)
	if whole > maxCounted {
		s = s[:maxCounted]
	}
	n, err := vocabulary().Count(strings.ToValidUTF8(s, "\uFFFD"))
	if err != nil { // the pattern that finds words gave up: four bytes a token is the family's mean
		n = len(s) / 4
	}
	if whole > len(s) {
		n = int(float64(n) * float64(whole) / float64(len(s)))
	}
	return n
}
