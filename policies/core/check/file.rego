# METADATA
# scope: package
# description: >-
#   A file operation names paths of its call or its stage, in the site's folders, and of a size that
#   the site allows - first by name, then by the real path.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.file

import data.caponier.core.files
import data.caponier.core.host

asked := {"operation"}

order := 9

ok if {
	input.file == null
	copy_ok
}

ok if input.file.action == "stage"

ok if host.discards

ok if {
	place_ok(input.file.path)
	local_ok
	parents_ok
	facts_ok
}

# Directories are made below the folder that the call names, or they are that folder.
parents_ok if input.file.parents == false

parents_ok if {
	input.file.parents == true
	input.file.action == "put"
	below(input.file.path, input.parent.targets.paths)
}

place_ok(p) if files.staged(p)

place_ok(p) if {
	input.file.action in {"stat", "list", "read", "get"}
	files.readable(p)
	declared
}

place_ok(p) if {
	input.file.action in files.changing
	files.writable(p)
	"paths" in input.tool.target_kinds
	declared
}

# An undo restores or removes only what the undone call wrote.
place_ok(p) if {
	input.file.action in {"write", "remove"}
	files.writable(p)
	"undo_steps" in input.tool.imports
	p in input.parent.targets.paths
}

place_ok(_) if host.looks_at

# A tool that declares paths uses only the paths of its call.
declared if not "paths" in input.tool.target_kinds

declared if input.file.path in input.parent.targets.paths

declared if {
	input.file.action in {"stat", "list"}
	some p in input.parent.targets.paths
	files.under(p, input.file.path)
}

# A tool that declares a folder reads or writes what is below it. Its local files are below the
# call's local folder.
declared if below(input.file.path, input.parent.targets.paths)

below(path, folders) if {
	"trees" in input.tool.target_kinds
	input.file.action in {"stat", "list", "get", "put"}
	some folder in folders
	files.under(path, folder)
}

# A blob may be copied only to a local path of the call.
copies if input.blob.action == "get"

copy_ok if not copies

copy_ok if {
	copies
	plain(input.blob.local)
	some p in input.parent.targets.local_paths
	files.under(input.blob.local, p)
}

local_ok if input.file.local == null

local_ok if input.file.local in input.parent.targets.local_paths

local_ok if {
	plain(input.file.local)
	below(input.file.local, input.parent.targets.local_paths)
}

# plain is true if no part of a local path is empty, "." or "..".
plain(local) if regex.match(`(^|/)\.{0,2}(/|$)`, local) == false

facts_ok if {
	input.phase == "lookup"
	input.file.real_path == null
}

facts_ok if {
	input.phase == "effect"
	is_string(input.file.real_path)
	place_really_ok
	kind_ok
	size_ok
}

# The real path must be in the stage or in the site's folders.
place_really_ok if {
	files.staged(input.file.path)
	files.staged(input.file.real_path)
}

place_really_ok if {
	not files.staged(input.file.path)
	input.file.action in {"stat", "list", "read", "get"}
	files.readable(input.file.real_path)
}

place_really_ok if {
	not files.staged(input.file.path)
	input.file.action in files.changing
	files.writable(input.file.real_path)
}

place_really_ok if {
	host.looks_at
	files.writable(input.file.real_path)
}

kind_ok if input.file.action == "stat"

kind_ok if {
	input.file.action == "list"
	input.file.type == "dir"
}

kind_ok if {
	input.file.action in {"read", "get", "remove"}
	input.file.type == "file"
}

kind_ok if {
	input.file.action in {"write", "put"}
	input.file.exists == false
}

kind_ok if {
	input.file.action in {"write", "put"}
	input.file.exists == true
	input.file.type == "file"
	input.file.overwrite == true
}

size_ok if input.file.action in {"stat", "list", "remove"}

size_ok if {
	input.file.action in {"read", "get", "write", "put"}
	is_number(input.file.bytes)
	is_number(data.site.files.max_bytes)
	input.file.bytes >= 0
	input.file.bytes <= data.site.files.max_bytes
}

what := concat("; ", faults)

faults contains sprintf("%s is in no folder that the site lists for this", [input.file.path]) if {
	not place_ok(input.file.path)
}

faults contains sprintf("local path %s is not one of the call's", [input.file.local]) if {
	not local_ok
}

faults contains "directories are made only below a folder that the call names" if {
	input.file != null
	not parents_ok
}

faults contains sprintf("local path %s is not in one of the call's", [input.blob.local]) if {
	not copy_ok
}

faults contains sprintf("it really is %s, which is elsewhere", [input.file.real_path]) if {
	input.phase == "effect"
	not place_really_ok
}

faults contains sprintf("it is %v bytes, over the limit of %v", [n, data.site.files.max_bytes]) if {
	n := input.file.bytes
	input.phase == "effect"
	not size_ok
}

faults contains "it is there already, and overwriting was not asked for" if {
	exists_plain
	input.file.overwrite == false
	not kind_ok
}

faults contains "it is not a plain file, or for a list not a folder" if {
	input.file != null
	input.phase == "effect"
	not kind_ok
	not exists_plain
}

exists_plain if {
	input.file.action in {"write", "put"}
	input.file.exists == true
	input.file.type == "file"
}

rule := "files/read, files/write and files/max_bytes, and the call's paths"

works := "the same call with overwrite, or another name" if {
	exists_plain
	not kind_ok
} else := "a path that the call names, in a folder that the site lists"

remedy := "In the site's data: files; in the call, the path and overwrite."
