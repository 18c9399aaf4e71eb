// Package privacy finds personal data and keys in text.
//
// Detection works on forms and check digits: e-mail addresses, phone numbers, US social security numbers, payment cards
// (ISO/IEC 7812), IBANs (ISO 13616), IP addresses, and keys (the rules of gitleaks). It does not find names of persons
// and places.
package privacy
