package microsandbox

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The little of CBOR (RFC 8949) that the agent's protocol uses. Written: integers, byte
// strings, text, booleans, arrays, maps by name. Read: whatever is well-formed, of which int64,
// []byte, string, []any and map[string]any are kept; tags, floats and other keys are passed over.

// Major types, in the upper three bits of an item's first byte.
const (
	cborUint = iota << 5
	cborNegative
	cborBytes
	cborText
	cborArray
	cborMap
	cborTag
	cborSimple
)

const (
	cborDepth      = 16   // of what is read
	cborIndefinite = 31   // in the lower five bits: until a break
	cborBreak      = 0xff // the end of an indefinite item
)

func appendHead(b []byte, major byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(b, major|byte(n))
	case n <= math.MaxUint8:
		return append(b, major|24, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, major|25), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, major|27), n)
}

// field is one entry of a map.
type field struct {
	name  string
	value any // uint64, int64, bool, string, []byte, []string, or [][]field, which is an array of maps
}

func appendMap(b []byte, fields ...field) []byte {
	b = appendHead(b, cborMap, uint64(len(fields)))
	for _, f := range fields {
		b = appendValue(append(appendHead(b, cborText, uint64(len(f.name))), f.name...), f.value)
	}
	return b
}

func appendValue(b []byte, value any) []byte {
	switch v := value.(type) {
	case uint64:
		return appendHead(b, cborUint, v)
	case int64:
		if v < 0 {
			return appendHead(b, cborNegative, uint64(-1-v))
		}
		return appendHead(b, cborUint, uint64(v))
	case bool:
		if v {
			return append(b, cborSimple|21)
		}
		return append(b, cborSimple|20)
	case string:
		return append(appendHead(b, cborText, uint64(len(v))), v...)
	case []byte:
		return append(appendHead(b, cborBytes, uint64(len(v))), v...)
	case []string:
		b = appendHead(b, cborArray, uint64(len(v)))
		for _, s := range v {
			b = appendValue(b, s)
		}
		return b
	case [][]field:
		b = appendHead(b, cborArray, uint64(len(v)))
		for _, m := range v {
			b = appendMap(b, m...)
		}
		return b
	}
	panic(fmt.Sprintf("cbor: %T cannot be written", value)) // a bug of this package
}

// readMap reads one map by name. Its byte strings are parts of data.
func readMap(data []byte) (map[string]any, error) {
	d := cborReader{data: data}
	value, err := d.item(0)
	if err != nil {
		return nil, err
	}
	m, ok := value.(map[string]any)
	if !ok || len(d.data) > 0 {
		return nil, fmt.Errorf("not one map: %w", errProtocol)
	}
	return m, nil
}

// cborReader reads items from the beginning of data, which it shortens.
type cborReader struct{ data []byte }

// head reads an item's first bytes: its type, and its length or value.
func (d *cborReader) head() (major, info byte, n uint64, err error) {
	first, err := d.take(1)
	if err != nil {
		return 0, 0, 0, err
	}
	major, info = first[0]&0xe0, first[0]&0x1f
	switch {
	case info < 24:
		return major, info, uint64(info), nil
	case info <= 27:
		bytes, err := d.take(1 << (info - 24))
		for _, b := range bytes {
			n = n<<8 | uint64(b)
		}
		return major, info, n, err
	case info == cborIndefinite:
		return major, info, 0, nil
	}
	return 0, 0, 0, fmt.Errorf("a reserved CBOR head: %w", errProtocol)
}

func (d *cborReader) take(n uint64) ([]byte, error) {
	if n > uint64(len(d.data)) {
		return nil, fmt.Errorf("CBOR that ends too early: %w", errProtocol)
	}
	bytes := d.data[:n]
	d.data = d.data[n:]
	return bytes, nil
}

// atBreak reports, and takes, the end of an indefinite item.
func (d *cborReader) atBreak() bool {
	if len(d.data) == 0 || d.data[0] != cborBreak {
		return false
	}
	d.data = d.data[1:]
	return true
}

// item reads one item; what is of no use here is nil.
func (d *cborReader) item(depth int) (any, error) {
	if depth > cborDepth {
		return nil, fmt.Errorf("CBOR too deep: %w", errProtocol)
	}
	major, info, n, err := d.head()
	if err != nil {
		return nil, err
	}
	endless := info == cborIndefinite
	switch major {
	case cborUint, cborNegative:
		return d.integer(major, n, endless)
	case cborBytes, cborText:
		return d.text(major, n, endless)
	case cborArray:
		return d.array(n, endless, depth)
	case cborMap:
		return d.mapping(n, endless, depth)
	case cborTag:
		return d.item(depth + 1)
	}
	if endless {
		return nil, fmt.Errorf("a CBOR break: %w", errProtocol)
	}
	return nil, nil //nolint:nilnil // true, false, null, a float
}

func (d *cborReader) integer(major byte, n uint64, endless bool) (any, error) {
	if endless || n > math.MaxInt64 {
		return nil, fmt.Errorf("a CBOR number too large: %w", errProtocol)
	}
	if major == cborNegative {
		return -1 - int64(n), nil
	}
	return int64(n), nil
}

// text reads a string whole; one in parts has no use here.
func (d *cborReader) text(major byte, n uint64, endless bool) (any, error) {
	if endless {
		return nil, fmt.Errorf("a CBOR string in parts: %w", errProtocol)
	}
	bytes, err := d.take(n)
	if err != nil || major == cborBytes {
		return bytes, err
	}
	return string(bytes), nil
}

func (d *cborReader) array(n uint64, endless bool, depth int) (any, error) {
	items := []any{}
	for i := uint64(0); endless || i < n; i++ {
		if endless && d.atBreak() {
			break
		}
		value, err := d.item(depth + 1)
		if err != nil {
			return nil, err
		}
		items = append(items, value)
	}
	return items, nil
}

func (d *cborReader) mapping(n uint64, endless bool, depth int) (any, error) {
	m := map[string]any{}
	for i := uint64(0); endless || i < n; i++ {
		if endless && d.atBreak() {
			break
		}
		key, err := d.item(depth + 1)
		if err != nil {
			return nil, err
		}
		value, err := d.item(depth + 1)
		if err != nil {
			return nil, err
		}
		if name, ok := key.(string); ok {
			m[name] = value
		}
	}
	return m, nil
}
