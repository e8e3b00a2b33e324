package suggest

import (
	"encoding/json"
	"regexp"
)

// forms are those that the site's data can list, where these are narrower than what is used.
var forms = map[int]*regexp.Regexp{paths: regexp.MustCompile(`^[^*?]+$`),
	services: regexp.MustCompile(`^[a-z0-9][a-z0-9:_.@-]{0,199}$`)}

// narrow gives a role the keys that it had, and the others that fit all that was used: what was
// used of each. Hours stay as they are.
func (r *Role) narrow(u *usage, was any) {
	role, _ := was.(map[string]any)
	r.Narrow = map[string][]Evidence{}
	for kind, key := range narrowing {
		_, listed := role[key]
		fits := len(u.powers[kind]) > 0 && u.powers[kind].all(forms[kind]) &&
			!(u.broad && (kind == guests || kind == services))
		if listed || fits {
			r.Narrow[key] = u.powers[kind].list()
		}
	}
	if hours, limited := role["hours"]; limited {
		text, err := json.Marshal(hours) // which is YAML
		r.Hours = string(text)
		if err != nil {
			r.Hours = "null" // which no site takes
		}
	}
}

// all reports whether all names have a form.
func (p powers) all(form *regexp.Regexp) bool {
	for name := range p {
		if form != nil && !form.MatchString(name) {
			return false
		}
	}
	return true
}
