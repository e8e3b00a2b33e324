;; plugin_trap: indirect call type mismatch
;; A function called as what it is not.
(module
  (memory (export "memory") 1)
  (table 1 1 funcref)
  (elem (i32.const 0) $long)
  (type $f (func (result i32)))
  (func $long (param i64 i64 i64) (result i64) (local.get 0))
  (func (export "caponier_v1_call") (result i32) (call_indirect (type $f) (i32.const 0)))
  (func (export "caponier_v1_describe") (result i32) (i32.const 0)))
