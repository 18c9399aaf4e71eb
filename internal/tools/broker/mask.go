package broker

import (
	"regexp"
	"strings"

	"github.com/codefleet/codefleet/internal/tools"
)

// hidden replaces secrets in a preview.
const hidden = "(hidden)"

// secretText matches credentials that are recognisable by their form.
var secretText = regexp.MustCompile(strings.Join([]string{
	`-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*-----|$)`,
	`\bgh[a-z]_[A-Za-z0-9]{16,}`, `\bgithub_pat_\w{16,}`, `\bglpat-[\w-]{16,}`, // GitHub, GitLab
	`\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}`, `\bAIza[\w-]{30,}`, // AWS, Google
	`\bxox[a-z]-[\w-]{8,}`, `\b[sr]k[-_][\w-]{16,}`, `\bnpm_[A-Za-z0-9]{16,}`, `\bhf_[A-Za-z0-9]{16,}`,
	`(?i:\b(?:bearer|basic) +)[\w+/=.~-]{12,}`, `\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?`, // JSON web tokens
}, "|"))

// namedSecret matches a secret after its name: in quotation marks, which may be escaped, or up to a separator.
var namedSecret = regexp.MustCompile(`(?i)(` + tools.SecretWords + `\\?["']?\s*[=:]\s*)(?:` +
	`(\\?"(?:(?:bearer|basic)\s+)?)(?:[^"\\]|\\[^"]){3,}|(\\?'(?:(?:bearer|basic)\s+)?)(?:[^'\\]|\\[^']){3,}|` +
	`((?:(?:bearer|basic)\s+)?)[^\s"'\\,;&}]{3,})`)

var (
	urlPassword = regexp.MustCompile(`(://[^/\s:@]*:)[^/\s@]+@`)
	mailAddress = regexp.MustCompile(`([\p{L}\p{N}])[\p{L}\p{N}._%+-]*@([\p{L}\p{N}-]+(?:\.[\p{L}\p{N}-]+)+)`)
	cardNumber  = regexp.MustCompile(`\b\d(?:[ -]?\d){12,18}\b`)
	separators  = strings.NewReplacer(" ", "", "-", "")
)

// mask hides credentials, the digits of payment cards except the last four, and the names of mail addresses except the
// first character. Their domains remain, because a decision may depend on them.
func mask(s string) string {
	s = secretText.ReplaceAllString(s, hidden)
	s = urlPassword.ReplaceAllString(s, "${1}"+hidden+"@")
	s = namedSecret.ReplaceAllString(s, "${1}${2}${3}${4}"+hidden)
	s = mailAddress.ReplaceAllString(s, "${1}…@${2}")
	return cardNumber.ReplaceAllStringFunc(s, func(s string) string {
		digits := separators.Replace(s)
		if !isCard(digits) {
			return s
		}
		return "(card …" + digits[len(digits)-4:] + ")"
	})
}

// isCard reports whether 13 to 19 characters are digits, begin like a card number of a large issuer, and have a valid
// check digit.
func isCard(digits string) bool {
	if !strings.ContainsRune("23456", rune(digits[0])) || strings.Trim(digits, "0123456789") != "" {
		return false
	}
	sum := 0
	for i := range len(digits) {
		d := int(digits[len(digits)-1-i] - '0')
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}
