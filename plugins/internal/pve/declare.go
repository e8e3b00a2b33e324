package pve

// Resources is the command that Guests runs. Every tool that uses Find or FailGuest declares it.
const Resources = "pvesh get /cluster/resources"

// OfGuests returns the commands of a tool that runs these verbs of pct and qm, finds the guest
// first, and reads these parts of it from the API.
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

// Reads returns the command with which Found.Get reads a part of a guest of this type, such as
// status/current.
func Reads(kind, part string) string {
	return "pvesh get /nodes/{node}/" + kind + "/{vmid}/" + part
}
