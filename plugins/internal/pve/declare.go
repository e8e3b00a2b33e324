package pve

// Resources is how Guests finds guests; every tool that uses Find or FailGuest declares it.
const Resources = "pvesh get /cluster/resources"

// OfGuests is what a tool declares that runs commands of pct and of qm, finds the guest first, and
// reads these parts of it from the API.
func OfGuests(verbs []string, reads ...string) (commands []string) {
	for _, v := range verbs {
		commands = append(commands, "pct "+v, "qm "+v)
	}
	commands = append(commands, Resources)
	for _, part := range reads {
		commands = append(commands, Reads("lxc", part), Reads("qemu", part))
	}
	return commands
}

// Reads is how Found.Get reads a part of a guest of this type, such as status/current.
func Reads(kind, part string) string {
	return "pvesh get /nodes/{node}/" + kind + "/{vmid}/" + part
}
