package caponier.core.check.schema_test

import data.caponier.core.fixture as f

test_call_of_another_version_is_refused if {
	f.failed(f.decided({"schema": "caponier.call/2"})) == {"schema"}
}

test_operation_of_another_version_is_refused if {
	q := object.union({"schema": "caponier.operation/2"}, f.run(["pct", "list"]))
	f.failed(f.operated(q)) == {"schema"}
}

test_operation_asked_as_a_call_is_refused if {
	"schema" in f.failed(f.decided({"schema": "caponier.operation/1"}))
}

test_list_asked_as_a_call_is_refused if {
	f.failed(f.seen({"schema": "caponier.call/1"})) == {"schema"}
}

test_unknown_source_is_refused if f.failed(f.decided({"source": "telnet"})) == {"schema"}

test_unknown_kind_is_refused if "schema" in f.failed(f.decided({"kind": "thing"}))

test_time_of_another_type_is_refused if {
	f.failed(f.decided({"time": {"unix_ms": null}})) == {"schema"}
}

test_imports_of_another_type_are_refused if {
	"schema" in f.failed(f.decided({"tool": {"imports": null}}))
}

test_commands_of_another_type_are_refused if {
	"schema" in f.failed(f.decided({"tool": {"commands": null}}))
}

test_whole_call_passes if f.decided({}).allow

test_whole_operation_passes if f.operated(f.run(["pct", "stop", "105"])).allow

test_whole_list_passes if f.seen({}).allow
