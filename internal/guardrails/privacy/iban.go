package privacy

import "strings"

// ibanLengths has the number of characters of an IBAN, without spaces, by country, from the registry of ISO 13616 that
// SWIFT keeps.
var ibanLengths = parseLengths("AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 " +
	"DJ27 DK18 DO28 EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 " +
	"IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 " +
	"NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 " +
	"TR26 UA29 VA22 VG24 XK20 YE30")

func parseLengths(list string) map[string]int {
	m := map[string]int{}
	for e := range strings.FieldsSeq(list) {
		m[e[:2]] = int(e[2]-'0')*10 + int(e[3]-'0')
	}
	return m
}

// ibanPrefix returns how many bytes at the start of text are an IBAN, with the spaces between its groups of four
// characters, or 0.
func ibanPrefix(text string) int {
	if len(text) < 15 || class[text[2]]&isDigit == 0 || class[text[3]]&isDigit == 0 {
		return 0
	}
	want := ibanLengths[strings.ToUpper(text[:2])]
	if want == 0 {
		return 0
	}
	var compact strings.Builder
	end := 0
	for end < len(text) && compact.Len() < want {
		switch c := text[end]; {
		case c < 0x80 && class[c]&isAlnum != 0:
			compact.WriteByte(c)
		case c == ' ' && compact.Len()%4 == 0:
		default:
			return 0
		}
		end++
	}
	if end < len(text) && class[text[end]]&isAlnum != 0 || compact.Len() < want || !mod97(compact.String()) {
		return 0
	}
	return end
}

// mod97 reports whether the check digits of an IBAN are right (ISO 7064, MOD 97-10).
func mod97(iban string) bool {
	remainder := 0
	for _, c := range strings.ToUpper(iban[4:] + iban[:4]) {
		if c >= 'A' {
			remainder = (remainder*100 + int(c-'A') + 10) % 97
		} else {
			remainder = (remainder*10 + int(c-'0')) % 97
		}
	}
	return remainder == 1
}
