// Package privacy finds personal data and secrets in text, and replaces them with tokens that can be turned back.
//
// Detection works on shapes and checksums: e-mail addresses, phone numbers, US social security numbers, payment cards
// (ISO/IEC 7812, Luhn), IBANs (ISO 13616, mod 97), IP addresses, and keys (the rules of gitleaks). It does not find
// names of persons and places. Replacing is a precaution for audiences that do not need the values, such as a model;
// what confines a program is the sandbox.
package privacy
