;; plugin_unavailable: shared
;; Shared memory could be written to while the host reads it.
(module
  (memory (export "memory") 1 2 shared)
  (func (export "caponier_v1_call") (result i32) (i32.const 0))
  (func (export "caponier_v1_describe") (result i32) (i32.const 0)))
