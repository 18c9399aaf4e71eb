package violation_test

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/codefleet/codefleet/internal/violation"
)

// TestBounded checks which numbers are replaced, and that big.Rat, with which the validator calculates, reads all.
func TestBounded(t *testing.T) {
	const most, least = "1.7976931348623157e+308", "5e-324"
	long := strings.Repeat("3", 300) + "." + strings.Repeat("3", 300)
	for text, want := range map[string]string{
		"1": "1", "-1.50": "-1.50", "1e308": "1e308", "9007199254740993": "9007199254740993", "5e-324": "5e-324",
		"0": "0", "-0": "-0", "0.000": "0", "0e99999999999999999999": "0", "0e-9999999": "0",
		"1e9999999": most, "-1E+9999999": "-" + most, "1e99999999999999999999": most, strings.Repeat("7", 2000): most,
		"1e-9999999": least, "-1e-99999999999999999999": "-" + least, "0." + strings.Repeat("0", 500) + "1": least,
		long: "3.3333333333333335e+299",
	} {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(`{"a":[` + text + `,"1e9999999"]}`))
		if err != nil {
			t.Fatal(err)
		}
		wanted := map[string]any{"a": []any{json.Number(want), "1e9999999"}}
		if diff := cmp.Diff(wanted, violation.Bounded(doc)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
		if _, ok := new(big.Rat).SetString(want); !ok {
			t.Errorf("big.Rat does not read %s, which replaces %s", want, text)
		}
	}
	if got := violation.Bounded(json.Number("1e9999999")); got != json.Number(most) {
		t.Errorf("Bounded(1e9999999) = %v, want %s", got, most)
	}
}
