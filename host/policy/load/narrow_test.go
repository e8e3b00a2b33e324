package load

import (
	"fmt"
	"strings"
	"testing"
)

// roles gives the lab's operator further keys.
func roles(t *testing.T, keys string) string {
	t.Helper()
	dir := copySite(t)
	edit(t, dir, "data.yaml", "\n  operator:\n", "\n  operator:\n"+keys)
	return dir
}

func TestMistakesInNarrowingKeysSayWhatToWrite(t *testing.T) {
	hours := func(days, from, to string) string {
		return fmt.Sprintf("hours: {days: %s, from: %s, to: %s}", days, from, to)
	}
	for name, x := range map[string]struct{ key, want string }{
		"tag for a guest":     {"guests: [prod]", `"prod" is not a guest's number as text`},
		"pool for a guest":    {"guests: [web/*]", "roles know guests by number alone"},
		"number, not text":    {"guests: [105]", "write text, in quotes"},
		"guest below 100":     {`guests: ["99"]`, `"99" is not a guest's number`},
		"all guests":          {`guests: ["*"]`, `"*" is not a guest's number`},
		"one guest, no list":  {`guests: "105"`, "write a list, such as [a, b]"},
		"nothing for a list":  {"guests:", "write a list, such as [a, b]"},
		"misspelt key":        {`guest: ["105"]`, `did you mean "guests"?`},
		"misspelt services":   {"service: [nginx]", `did you mean "services"?`},
		"misspelt hours":      {"hour: {}", `did you mean "hours"?`},
		"vmids for guests":    {`vmids: ["105"]`, `there is no key "vmids" here`},
		"tags":                {"tags: [web]", `there is no key "tags" here`},
		"service upper case":  {"services: [Nginx]", "the name of a unit in lower case"},
		"service of no kind":  {"services: [nginx.servce]", "no kind of unit that systemd knows"},
		"service pattern":     {`services: ["nginx*"]`, "the name of a unit in lower case"},
		"host not in egress":  {"hosts: [a.example]", `no entry of egress is "a.example"`},
		"relative path":       {"paths: [var/log]", "not an absolute path in its shortest form"},
		"path with a slash":   {"paths: [/var/log/]", "not an absolute path in its shortest form"},
		"path with dots":      {"paths: [/var/log/../x]", "not an absolute path"},
		"path pattern":        {`paths: ["/var/log/*"]`, "taken as they stand"},
		"path of no folder":   {"paths: [/opt]", "has nothing in common with files/read"},
		"day in full":         {hours("[monday]", `"09:00"`, `"17:00"`), `monday is none of mon`},
		"day in upper case":   {hours("[Mon]", `"09:00"`, `"17:00"`), `did you mean "mon"?`},
		"days as a range":     {hours("[mon-fri]", `"09:00"`, `"17:00"`), `mon-fri is none of mon`},
		"days as a text":      {hours("mon", `"09:00"`, `"17:00"`), "write a list"},
		"day as a number":     {hours("[1]", `"09:00"`, `"17:00"`), "write text, in quotes"},
		"an hour":             {hours("[mon]", "9", `"17:00"`), "write text, in quotes"},
		"a short time":        {hours("[mon]", `"9:00"`, `"17:00"`), `a time of the day in UTC`},
		"a time of day":       {hours("[mon]", `"09:00"`, `"5pm"`), `or "24:00"`},
		"after midnight":      {hours("[mon]", `"09:00"`, `"25:00"`), `or "24:00"`},
		"from 24:00":          {hours("[mon]", `"24:00"`, `"06:00"`), `a time of the day in UTC`},
		"no time at all":      {hours("[mon]", `"09:00"`, `"09:00"`), `write from: "00:00", to`},
		"seconds":             {hours("[mon]", `"09:00:00"`, `"17:00"`), "a time of the day"},
		"without days":        {`hours: {from: "09:00", to: "17:00"}`, `the key "days" is missing`},
		"without an end":      {`hours: {days: [mon], from: "09:00"}`, `the key "to" is missing`},
		"without a beginning": {`hours: {days: [mon], to: "09:00"}`, `the key "from" is missing`},
		"null hours":          {"hours:", "write a map"},
		"empty hours":         {"hours: {}", "is missing"},
		"hours as a text":     {`hours: "9-17"`, "write a map"},
		"a time zone": {`hours: {days: [mon], from: "09:00", to: "17:00", zone: Europe/Berlin}`,
			"hours are days, from and to, in UTC all year"},
		"misspelt from": {
			`hours: {days: [mon], form: "09:00", to: "17:00"}`, `did you mean "from"?`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Check(t.Context(), roles(t, "    "+x.key+"\n"), inventory())
			if err == nil || !strings.Contains(err.Error(), x.want) ||
				!strings.Contains(err.Error(), "site/data.yaml:3") {
				t.Errorf("error %v, want file:line and %q", err, x.want)
			}
		})
	}
}

func TestNarrowingKeysAreTaken(t *testing.T) {
	for _, key := range []string{"guests: []", `guests: ["105", "106"]`, "services: []",
		"services: [nginx, ssh.service, a.timer]", "hosts: []", "paths: []",
		"paths: [/var/log/nginx, /var]",
		`hours: {days: [], from: "09:00", to: "17:00"}`,
		`hours: {days: [sat, sun], from: "22:00", to: "06:00"}`,
		`hours: {days: [sat], from: "00:00", to: "24:00"}`} {
		if _, err := FromFolder(t.Context(), roles(t, "    "+key+"\n"), inventory()); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}
