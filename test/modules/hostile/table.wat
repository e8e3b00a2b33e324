;; plugin_trap: table
(module
  (memory (export "memory") 1)
  (table 65536 65536 funcref)
  (type $f (func (result i32)))
  (func (export "caponier_v1_call") (result i32) (call_indirect (type $f) (i32.const 65536)))
  (func (export "caponier_v1_describe") (result i32) (i32.const 0)))
