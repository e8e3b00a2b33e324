package shell

import (
	"maps"
	"slices"
	"strings"
)

// evaluating are names that quoting does not make harmless. A shell runs these commands itself and
// reads their words once more, as code (eval, trap, printf -v 'a[$(id)]'), or they change what a
// later word means (set, alias). The list is the union of dash, bash, ksh, zsh and busybox, with
// the reserved words of zsh that bash's grammar takes for the name of a program.
var evaluating = words(`- . alias autoload bg bind break builtin caller chdir command compgen
	complete compopt continue coproc declare dirs disown echotc echoti emulate enable end eval
	exec exit export fc fg float foreach function functions getln getopts hash hist history in
	integer jobs let limit local log logout mapfile nameref noglob nocorrect popd print
	private pushd pushln r read readarray readonly rehash repeat return sched select set
	setopt shift shopt source suspend times trap ttyctl typeset ulimit umask unalias
	unfunction unhash unlimit unset unsetopt vared wait whence zcompile zformat zle zmodload
	zparseopts zprof zpty zregexparse zsocket zstyle ztcp`)

// numeric are builtins that are harmless unless an operand is an expression: ksh and zsh evaluate
// the operands of -eq and %d, and bash evaluates those of -v.
var numeric = words(`test [ printf kill`)

func words(list string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(list) {
		m[w] = true
	}
	return m
}

// evaluates returns why a shell that gets argv quoted would read one of its words as code, or "".
func evaluates(argv []string) string {
	if len(argv) == 0 {
		return ""
	}
	switch name := argv[0]; {
	case strings.HasPrefix(name, "%"): // quoted too, bash and zsh take it for the number of a job
		return "the job " + name + ", which the shell itself would continue,"
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

// posixShells are the programs, without a folder, that run the text after -c and that a node or a
// container may have.
var posixShells = words(`sh bash dash ash ksh ksh93 mksh oksh rbash static-sh zsh`)

// reserved are words that the grammar takes for its own where a command begins.
var reserved = words(`if then elif else fi case esac for while until do done select function time
	coproc in`)

// Special returns, sorted, the words that a text cannot begin a command with and mean a program,
// and the names of shells.
func Special() (own, shells []string) {
	for _, list := range []map[string]bool{evaluating, numeric, reserved} {
		own = slices.AppendSeq(own, maps.Keys(list))
	}
	slices.Sort(own)
	return slices.Compact(own), slices.Sorted(maps.Keys(posixShells))
}
