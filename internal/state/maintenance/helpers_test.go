package maintenance_test

import "github.com/codefleet/codefleet/internal/state/statetest"

var ref = statetest.Ref
