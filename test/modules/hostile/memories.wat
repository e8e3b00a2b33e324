;; plugin_unavailable: 2 memories
(module
  (memory (export "memory") 1)
  (memory $second 1)
  (func (export "caponier_v1_call") (result i32) (i32.const 0))
  (func (export "caponier_v1_describe") (result i32) (i32.const 0)))
