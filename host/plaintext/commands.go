package plaintext

import "slices"

// Commands returns the commands of a tool for people, with "*" spelled out.
func Commands(commands []string) []string {
	shown := slices.Clone(commands)
	for i, c := range shown {
		if c == "*" {
			shown[i] = "* (ANY COMMAND in the text of the call that the site allows)"
		}
	}
	return shown
}
