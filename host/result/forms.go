package result

import (
	"maps"
	"slices"
)

// form is one form of a secret: its beginning, and what belongs to it after that.
type form struct{ start, more, until string }

const (
	digits  = "0123456789"
	upper   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	letters = upper + "abcdefghijklmnopqrstuvwxyz"
	word    = letters + digits + "_-"
	base64s = letters + digits + "+/="
	crypts  = letters + digits + "./"
	// c is a letter of crypt(3). JSON may write / as \/.
	c = `(?:[.A-Za-z0-9]|\\?/)`
	// pem64 is what follows "-----BEGIN " in base64, up to "PRIVATE KEY" in each of its three
	// places, in text and in JSON.
	pem64 = `(?:[A-Za-z0-9+/\r\n]|\\[nr]){0,40}?` +
		`(?:UFJJVkFURSBLRVkt|BSSVZBVEUgS0VZL|QUklWQVRFIEtFWS)`
	// longestEnd bounds what until matches.
	longestEnd = 128
)

// builtin holds the forms of each detector. Each begins with fixed letters, which are found fast,
// and does not look at what is before it: in JSON text a line break before it is the letter n.
var builtin = map[string][]form{
	"private_key": {
		{start: `-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----`,
			until: `-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----`},
		{start: `---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----`,
			until: `---- END SSH2 ENCRYPTED PRIVATE KEY ----`},
		{start: `PuTTY-User-Key-File-[0-9]: `, until: `Private-(?:MAC|Hash): [0-9a-f]{40,64}`},
		{start: `LS0tLS1CRUdJTi` + pem64, more: base64s + "\r\n"},
		{start: `0tLS0tQkVHSU4g` + pem64, more: base64s + "\r\n"},
		{start: `LS0tLUJFR0lOI` + pem64, more: base64s + "\r\n"},
		{start: `AGE-SECRET-KEY-[A-Z0-9-]{20}`, more: upper + digits + "-"},
	},
	"password_hash": {
		{start: `\$1\$` + c + `{1,8}\$` + c + `{22}`, more: crypts},
		{start: `\$5\$(?:rounds=[0-9]{1,9}\$)?` + c + `{0,16}\$` + c + `{43}`, more: crypts},
		{start: `\$6\$(?:rounds=[0-9]{1,9}\$)?` + c + `{0,16}\$` + c + `{86}`, more: crypts},
		{start: `\$2[abxy]\$[0-9]{2}\$` + c + `{53}`, more: crypts},
		{start: `\$y\$` + c + `{1,16}\$` + c + `{0,86}\$` + c + `{43}`, more: crypts},
		{start: `\$gy\$` + c + `{1,16}\$` + c + `{0,86}\$` + c + `{43}`, more: crypts},
		{start: `\$7\$` + c + `{11,97}\$` + c + `{43}`, more: crypts},
		{start: `\$argon2(?:id|i|d)\$`, more: base64s + "$,."},
	},
	"token": {
		{start: `gh[pousr]_[A-Za-z0-9]{36}`, more: letters + digits},
		{start: `github_pat_[A-Za-z0-9_]{22}`, more: letters + digits + "_"},
		{start: `glpat-[A-Za-z0-9_-]{20}`, more: word + "."},
		{start: `xox[abeprs]-[A-Za-z0-9-]{10}`, more: letters + digits + "-"},
		{start: `PVEAPIToken=[^\s!"]{1,64}![A-Za-z0-9._-]{1,64}=[0-9a-f-]{36}`},
		{start: `PVE:[^\s:"]{1,64}:[0-9A-F]{8}::`, more: base64s},
		{start: `eyJ[A-Za-z0-9_-]{8,600}\.eyJ[A-Za-z0-9_-]{4}`, more: word + "."},
	},
	"cloud": {
		{start: `AKIA[A-Z0-9]{16}`, more: upper + digits},
		{start: `ASIA[A-Z0-9]{16}`, more: upper + digits},
		{start: `aws_secret_access_key[ "':=\\]{1,8}(?:[A-Za-z0-9+=]|\\?/){40}`, more: base64s},
		{start: `AccountKey=(?:[A-Za-z0-9+=]|\\?/){40}`, more: base64s},
		{start: `SharedAccessKey=(?:[A-Za-z0-9+=]|\\?/){40}`, more: base64s},
	},
}

// Names returns the names of the built-in detectors, sorted.
func Names() []string { return slices.Sorted(maps.Keys(builtin)) }
