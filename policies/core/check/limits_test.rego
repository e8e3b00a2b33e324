package caponier.core.check.limits_test

import data.caponier.core.fixture as f

blob(n) := {
	"op": "blob_write", "target": null, "tool": {"imports": ["blob_write"]},
	"blob": {"action": "write", "name": "x", "mime": "a/b", "bytes": n, "ttl_s": 1},
}

ask(n) := {
	"op": "ask", "target": null, "tool": {"imports": ["ask"]},
	"ask": {"key": "k", "bytes": n, "fields": 1},
}

test_blob_is_limited if {
	f.operated(blob(1000)).allow
	f.failed(f.operated(blob(1001))) == {"limits"}
	f.failed(f.operated(blob(null))) == {"limits"}
}

test_question_is_limited if {
	f.operated(ask(100)).allow
	f.failed(f.operated(ask(101))) == {"limits"}
	f.failed(f.operated(ask("9"))) == {"limits"}
}
