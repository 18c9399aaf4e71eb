package codegen

import (
	"strings"
	"sync"

	"github.com/tiktoken-go/tokenizer"
)

// maxCounted is the number of bytes that are counted; the count of a longer text is extrapolated.
const maxCounted = 256 << 10

// vocabulary is that of the GPT-4o family and its successors. Decoding it takes about 50 ms, at its first use.
var vocabulary = sync.OnceValue(func() tokenizer.Codec {
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		panic("codegen: embedded vocabulary: " + err.Error())
	}
	return codec
})

// Tokens counts the tokens of a text with the vocabulary o200k_base; for models with another vocabulary this is an
// approximation. It stands in where an endpoint reports no count, and for texts that are not sent.
func Tokens(s string) int {
	whole := len(s)
	if whole > maxCounted {
		s = s[:maxCounted]
	}
	n, err := vocabulary().Count(strings.ToValidUTF8(s, "\uFFFD"))
	if err != nil { // the tokenizer's pattern gave up: four bytes a token is the mean
		n = len(s) / 4
	}
	if whole > len(s) {
		n = int(float64(n) * float64(whole) / float64(len(s)))
	}
	return n
}
