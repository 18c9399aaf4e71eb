package expression

import (
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// maxNodes is how many values a list or an object that an expression makes may contain, at any depth. The inputs of a
// workflow have fewer.
const maxNodes = 300_000

// bound makes an expression fail that constructs a list or an object with more than maxNodes values. If a list contains
// another one many times, CEL charges as little for it as for any list, but a comparison visits each copy, and cannot
// be interrupted.
func bound(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	c, ok := i.(interpreter.InterpretableConstructor)
	if !ok || len(c.InitVals()) == 0 {
		return i, nil
	}
	return bounded{c}, nil
}

// bounded constructs a list or an object, and refuses one that is too large.
type bounded struct {
	interpreter.InterpretableConstructor
}

// Exec implements interpreter.InterpretableV2.
func (b bounded) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := b.InterpretableConstructor.Exec(frame)
	room := maxNodes
	if !fits(v, &room) {
		return types.NewErr("a list or an object has more than %d values", maxNodes)
	}
	return v
}

// Eval implements interpreter.Interpretable.
func (b bounded) Eval(a interpreter.Activation) ref.Val { return interpreter.EvalActivation(a, b.Exec) }

// fits reports whether v and what it contains are at most room values, and subtracts them from room.
func fits(v ref.Val, room *int) bool {
	if *room--; *room < 0 {
		return false
	}
	switch v := v.(type) {
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if !fits(v.Get(it.Next()), room) {
				return false
			}
		}
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if !fits(it.Next(), room) {
				return false
			}
		}
	}
	return true
}

// length returns the size of a string or of bytes, and 0 for other values.
func length(v ref.Val) int {
	switch v := v.(type) {
	case types.String:
		return len(v)
	case types.Bytes:
		return len(v)
	}
	return 0
}
