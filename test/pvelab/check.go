package pvelab

import (
	"errors"
	"strings"
)

// Check says whether the real option parser and schema would accept a command line of pct, qm,
// pvesm, pvecm, pvenode or pvesh, without running it: the method that the words reach, or the
// error's text.
func (l *Lab) Check(argv []string) (resolves string, err error) {
	if len(argv) == 0 {
		return "", errors.New("no command")
	}
	trim := func(err error) error {
		var bad *badRequest
		// the verdict has neither the parser's warnings nor the usage line
		if errors.As(err, &bad) {
			return errors.New(
				strings.TrimSpace((&badRequest{msg: bad.msg, fields: bad.fields}).Error()),
			)
		}
		return err
	}
	if argv[0] == "pvesh" {
		x, why, err := parsePvesh(argv[1:])
		if why != "" {
			return "", errors.New(why)
		}
		if err != nil {
			return "", trim(err)
		}
		r, vals := match(l.routes, pathParts(x.path))
		if r == nil || r.methods[x.verb] == nil {
			return "", die(1, "No '%s' handler defined for '%s'", x.verb, x.path)
		}
		m := r.methods[x.verb]
		if _, err := x.bind(&proc{lab: l, node: "pve1"}, m, vals); err != nil {
			return "", trim(err)
		}
		return "pvesh " + x.verb + " " + m.Class, nil
	}
	pr := l.programs[argv[0]]
	if pr == nil {
		return "", errors.New("unknown program " + argv[0])
	}
	c, rest, words, why := pr.resolve(argv[1:])
	if why != "" {
		if last := argv[1:]; strings.HasPrefix(why, "incomplete") && len(last) > 0 {
			_, word, _ := strings.Cut(words, " ")
			return "", errors.New("ambiguous '" + word + "'")
		}
		return "", errors.New(why)
	}
	if _, _, err := pr.parse(c, rest, map[string]string{"node": "pve1"}); err != nil {
		return "", trim(err)
	}
	return words + " -> " + c.M.Class + "::" + c.M.Name, nil
}
