package executor

import "github.com/codefleet/codefleet/internal/strictjson"

// maxResultDepth limits the levels of a program's result: jsonable.MAX_DEPTH, plus levels for objects that stand for
// values without a JSON form. The runner's module jsonable enforces this limit and those of package strictjson, but a
// program may write its result to the channel itself.
const maxResultDepth = 64

// validResult reports whether a result is at most MaxResultBytes of JSON in UTF-8 that all common libraries can decode,
// and decode alike. No object has two members with the same name: a check could see the one, and a reader of the result
// the other.
func validResult(data []byte) bool {
	return len(data) <= MaxResultBytes && strictjson.CheckDepth(data, maxResultDepth) == nil
}
