package codegen

import (
	"strings"
	"sync"

	"github.com/tiktoken-go/tokenizer"
)

// maxCounted is the number of bytes whose tokens are counted. The count of a longer text is extrapolated.
const maxCounted = 256 << 10

// vocabulary is that of the GPT-4o family and its successors. It is decoded at its first use, in about 50 ms.
var vocabulary = sync.OnceValue(func() tokenizer.Codec {
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		panic("codegen: embedded vocabulary: " + err.Error())
	}
	return codec
})

// Tokens counts the tokens of a text with the vocabulary o200k_base, which is an approximation for models with a
// different vocabulary. It is used before a prompt is sent, if an endpoint reports no count, and for texts that are not
// sent.
func Tokens(s string) int {
	counted := s[:min(len(s), maxCounted)]
	n, err := vocabulary().Count(strings.ToValidUTF8(counted, "\uFFFD"))
	if err != nil { // the tokenizer's pattern gave up; a token has four bytes on average
		n = len(counted) / 4
	}
	if len(s) > maxCounted {
		n = int(float64(n) * float64(len(s)) / maxCounted)
	}
	return n
}
