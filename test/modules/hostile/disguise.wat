;; plugin_unavailable: wrong type
;; An operation imported as something else.
(module
  (import "caponier_v1" "ssh_exec" (func (param i64 i64) (result i64)))
  (memory (export "memory") 1)
  (func (export "caponier_v1_call") (result i32) (i32.const 0))
  (func (export "caponier_v1_describe") (result i32) (i32.const 0)))
