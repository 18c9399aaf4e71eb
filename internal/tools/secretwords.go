package tools

// SecretWords is a pattern of how the names of secrets end: client_secret, secretKey, aws_secret_access_key.
const SecretWords = `(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|credential|authorization|cookie|` +
	`(?:api|private|secret|access|account|auth|encryption|master|signing|ssh)[ _-]?key)s?`
