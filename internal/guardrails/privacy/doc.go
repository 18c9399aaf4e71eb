// Package privacy finds personal data and keys in text, and replaces them with tokens.
//
// A Detector finds values by their forms and check digits: e-mail addresses, phone numbers, US social security numbers,
// payment cards (ISO/IEC 7812), IBANs (ISO 13616), IP addresses, and keys (the rules of gitleaks). It does not find
// names of persons and places; a Recognizer asks a service for them. Tokens replaces values with tokens, and tokens
// with values. A Filter has the settings of all tenants.
package privacy
