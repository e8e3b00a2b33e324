;; plugin_unavailable: reference types
;; A table that could be changed would be state that outlives a call.
(module
  (memory (export "memory") 1)
  (table $t 1 1 funcref)
  (func (export "caponier_v1_call") (result i32) (table.set $t (i32.const 0) (ref.null func)) (i32.const 0))
  (func (export "caponier_v1_describe") (result i32) (i32.const 0)))
