package jobs

import (
	"crypto/rand"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func rand6() string { return rand.Text()[:6] }
