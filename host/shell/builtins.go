package shell

import "strings"

// Why a list of names here, when commands are policy's business? Because quoting does not reach it:
// a shell runs these inside itself and reads their words once more, as code (eval, trap, printf -v
// 'a[$(id)]'), or they change what a later word means (cd is harmless, set and alias are not). The
// list is the union of dash, bash, ksh, zsh and busybox.
var evaluating = words(
	`- . alias autoload bg bind break builtin caller chdir command compgen complete compopt continue coproc declare dirs disown
	echotc echoti emulate enable eval exec exit export fc fg float function functions getln getopts hash hist history integer jobs let limit local log
	logout mapfile nameref noglob nocorrect popd print private pushd pushln r read readarray readonly rehash return sched select set setopt shift
	shopt source suspend times trap ttyctl typeset ulimit umask unalias unfunction unhash unlimit unset unsetopt vared wait whence zcompile zformat zle
	zmodload zparseopts zprof zpty zregexparse zsocket zstyle ztcp`,
)

// numeric builtins are harmless unless an operand is an expression: ksh and zsh evaluate operands
// of -eq and %d, bash those of -v.
var numeric = words(`test [ printf kill`)

func words(list string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(list) {
		m[w] = true
	}
	return m
}

// evaluates says why the shell that gets argv, quoted, would read one of its words as code, or "".
func evaluates(argv []string) string {
	if len(argv) == 0 {
		return ""
	}
	switch name := argv[0]; {
	case evaluating[name]:
		return "the shell's own " + name + ", which reads or changes code in the shell,"
	case numeric[name]:
		for _, w := range argv[1:] {
			if strings.HasPrefix(w, "-v") || w == "-R" || strings.ContainsAny(w, "$`") {
				return name + " with the word " + w + ", which the shell may evaluate,"
			}
		}
	}
	return ""
}
