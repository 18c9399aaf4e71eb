package executor

import (
	"errors"
	"testing"
)

func TestProbeOnce(t *testing.T) {
	var once ProbeOnce
	broken := errors.New("broken")
	if _, err := once.Do(func() (Info, error) { return Info{}, broken }); !errors.Is(err, broken) {
		t.Errorf("Do = %v, want %v", err, broken)
	}
	for _, driver := range []string{"first", "second"} {
		info, err := once.Do(func() (Info, error) { return Info{Driver: driver}, nil })
		if info.Driver != "first" || err != nil {
			t.Errorf("Do = %+v, %v, want the first success", info, err)
		}
	}
}
