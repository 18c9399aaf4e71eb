package runner

import "testing"

// Of a mapping whose first half MiB has content, the zeros behind it are freed, except the margin. Content stays.
func TestZeros(t *testing.T) {
	const check = `
import ctypes, mmap, sys
sys.modules["zeros"] = zeros = type(sys)("zeros")
exec(sys.stdin.read(), zeros.__dict__)
area = mmap.mmap(-1, 2 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
area.write(b"x" * (1 << 19) + bytes(3 << 19))
area[(2 << 20) - 1] = 7
before = bytes(area)
freed = zeros.drop()
address = ctypes.addressof(ctypes.c_char.from_buffer(area))
pages = ctypes.create_string_buffer(512)
if ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(2 << 20), pages):
    sys.exit("mincore failed")
lost = sum(1 for page in range(512) if not pages.raw[page] & 1)
print(bytes(area) == before, freed >= lost * 4096, (3 << 19) - lost * 4096)
`
	out := python(t, check, source("zeros"))
	// What stays is the margin, and the last unit, which has content.
	if want := "True True 81920\n"; out != want {
		t.Errorf("content kept, freed, bytes of zeros kept = %s, want %s", out, want)
	}
}
