;; plugin_trap: unreachable
(module
  (memory (export "memory") 1)
  (func (export "caponier_v1_call") (result i32) unreachable)
  (func (export "caponier_v1_describe") (result i32) (i32.const 0)))
